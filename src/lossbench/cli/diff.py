"""`lossbench diff`: what two runs, or two studies, have differently."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .application import COMPARE, Json, app

if TYPE_CHECKING:
    from lossbench.report.diff import Diff


@app.command("diff", rich_help_panel=COMPARE)
def diff_runs(
    a: Annotated[str, typer.Argument(help="A run, a study, or another set of runs.", metavar="A")],
    b: Annotated[str, typer.Argument(help="What it is compared with.", metavar="B")],
    runs: Annotated[Path, typer.Option(help="The folder that holds the studies, for names that are no path.")] = Path(
        "runs"
    ),
    as_json: Json = False,
) -> None:
    """Say in which settings, versions and numbers two runs or studies differ.

    Examples:
    lossbench diff runs/demo/focal-tiny-arithmetic-s0-1f2e runs/demo/focal-tiny-arithmetic-s1-9ab0
    lossbench diff runs/monday runs/tuesday
    """
    from lossbench.report.diff import diff

    found = diff(_place(a, runs), _place(b, runs))
    if as_json:
        from lossbench.report.numbers import as_json as spelled

        tables = {name: getattr(found, name) for name in ("facts", "settings", "versions")}
        numbers = [
            {"name": n.name, "a": spelled(n.a), "b": spelled(n.b), "delta": spelled(n.delta), "note": n.note}
            for n in found.numbers
        ]
        print(json.dumps({"a": found.a, "b": found.b, **tables, "numbers": numbers}, indent=2))
        return
    _print(found)


def _place(given: str, runs: Path) -> str:
    """The path itself, or the study or run of that name, id or beginning of an id below the folder of runs."""
    if Path(given).exists() or ":" in given or not runs.is_dir():
        return given
    if (runs / given).is_dir():
        return str(runs / given)
    found = [f for f in sorted(runs.glob("*/*")) if f.is_dir() and f.name.rpartition("-")[2].startswith(given)]
    found = found or [f for f in sorted(runs.glob("*/*")) if f.name == given]
    if len(found) > 1:
        from lossbench.errors import ConfigError

        raise ConfigError(f"{given!r} could be each of {', '.join(map(str, found))}; name one of them.")
    return str(found[0]) if found else given


def _print(found: Diff) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    console.print(Text(f"a: {found.a}\nb: {found.b}"))
    for title, rows in (("Run", found.facts), ("Settings", found.settings), ("Versions", found.versions)):
        if not rows:
            console.print(f"{title}: equal.")
            continue
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, title=title, title_justify="left")
        for column in ("key", "a", "b"):
            table.add_column(column, overflow="fold")
        for row in rows:
            table.add_row(*map(Text, row))
        console.print(table)
    if not found.numbers:
        console.print("Metrics: neither side has any.")
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, title="Metrics", title_justify="left")
    table.add_column("metric", overflow="fold")
    for column in ("a", "b", "b - a"):
        table.add_column(column, justify="right")
    different = [number for number in found.numbers if number.delta != 0]
    for number in different:
        shown = ("" if value is None else f"{value:.6g}" for value in (number.a, number.b))
        delta = "" if number.delta is None else f"{number.delta:+.6g}"
        name = f"{number.name} ({number.note})" if number.note else number.name
        table.add_row(Text(name), *shown, delta)
    if different:
        console.print(table)
    if equal := len(found.numbers) - len(different):
        console.print(f"{equal} of {len(found.numbers)} metrics are equal.")
