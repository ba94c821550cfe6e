"""`lossbench doctor`: what this machine can do, and what to do about what it cannot."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from .application import AROUND, Json, app

COLOURS = {"ok": "green", "note": "yellow", "bad": "red"}


@app.command(rich_help_panel=AROUND)
def doctor(
    runs: Annotated[Path, typer.Option(help="The folder where runs will be written.")] = Path("runs"),
    as_json: Json = False,
) -> None:
    """Say what this machine can do, and what to do about the rest.

    It looks at Python, torch, GPU, bfloat16, disk, hub, wandb login and SLURM; exit code 1 if runs will fail.

    Examples:
    lossbench doctor
    lossbench doctor --json
    """
    from lossbench.doctor import examine

    found = examine(runs)
    if as_json:
        print(json.dumps([asdict(line) for line in found], indent=2))
    else:
        from rich.console import Console
        from rich.markup import escape
        from rich.table import Table

        table = Table(box=None, show_header=False, pad_edge=False)
        for line in found:
            words = escape(f"{line.found}\n{line.advice}" if line.advice else line.found)
            table.add_row(f"[{COLOURS[line.status]}]{line.status}[/]", line.name, words)
        Console(highlight=False).print(table)
    if any(line.status == "bad" for line in found):
        raise typer.Exit(1)
