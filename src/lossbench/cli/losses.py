"""`lossbench losses`: the registry."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from .application import LOSSES, Json, app

WIDE = 160  # columns that a line of defaults and titles needs; narrower terminals get authors and year
losses_app = typer.Typer(
    no_args_is_help=True,
    help="""List, explain, check and draw the losses of the registry.

    Examples:
    lossbench losses list
    lossbench losses show focal
    lossbench losses plot cross_entropy focal --out losses.png
    lossbench losses check my_module:MyLoss
    """,
)
app.add_typer(losses_app, name="losses", rich_help_panel=LOSSES)


def _registered(incomplete: str) -> list[str]:
    """Names for tab completion, from the source: importing the losses would import torch, and take seconds."""
    sources = (Path(__file__).parents[1] / "losses" / "families").glob("*.py")
    names = [
        name for file in sources for name in re.findall(r'^@register\("(\w+)"', file.read_text("utf-8"), flags=re.M)
    ]
    return sorted(name for name in names if name.startswith(incomplete))


@losses_app.command("list")
def list_losses(as_json: Json = False) -> None:
    """Name, kind, scope, needs, defaults and paper of every registered loss.

    Examples:
    lossbench losses list
    lossbench losses list --json
    """
    from lossbench import losses

    found = [losses.info(name) for name in losses.available()]
    if as_json:
        keys = ("name", "kind", "scope", "summary", "paper", "needs", "defaults")
        print(json.dumps([{key: getattr(info, key) for key in keys} for info in found], indent=2, default=str))
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    is_wide = console.width >= WIDE
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in ("name", "kind", "scope", "needs", *(("defaults",) if is_wide else ()), "paper"):
        table.add_column(column, overflow="fold", no_wrap=column in ("name", "kind", "scope"))
    for info in found:
        defaults = ", ".join(f"{name}={value}" for name, value in info.defaults.items())
        paper = info.paper if is_wide else info.paper.partition(", ")[0]
        table.add_row(info.name, info.kind, info.scope, ", ".join(info.needs), *((defaults,) if is_wide else ()), paper)
    console.print(table)
    print(
        f"{len(found)} losses. `lossbench losses show NAME` says all about one, --json all about all.", file=sys.stderr
    )


@losses_app.command("show")
def show_loss(
    name: Annotated[str, typer.Argument(help="A registered loss, or module:attribute.", autocompletion=_registered)],
    as_json: Json = False,
) -> None:
    """Formula, parameters, hazards, source and gradient twins of a loss.

    Examples:
    lossbench losses show emo
    """
    from lossbench import losses
    from lossbench.losses.describe import as_text

    info = losses.info(name)
    print(json.dumps(asdict(info), indent=2, default=str) if as_json else as_text(info))


@losses_app.command("check")
def check_losses(
    names: Annotated[
        list[str], typer.Argument(help="Registered losses, module:attribute, or `all`.", autocompletion=_registered)
    ],
    as_json: Json = False,
) -> None:
    """Try losses against the rules that every loss obeys; exit code 1 if one of them fails.

    Examples:
    lossbench losses check focal
    lossbench losses check my_package.my_module:MyLoss
    lossbench losses check all
    """
    from lossbench import losses

    sys.path.insert(0, "")  # a class of a module in the present folder
    reports = [losses.check(name) for name in (losses.available() if names == ["all"] else names)]
    if as_json:
        print(json.dumps([{"ok": report.ok, **asdict(report)} for report in reports], indent=2))
    else:
        print("\n\n".join(str(report) for report in reports))
    if not all(report.ok for report in reports):
        raise typer.Exit(1)


@losses_app.command("plot")
def plot_losses(
    names: Annotated[
        list[str], typer.Argument(help="Registered losses, or module:attribute.", autocompletion=_registered)
    ],
    out: Annotated[Path, typer.Option(help="A .png or .svg file.")] = Path("losses.svg"),
) -> None:
    """Draw value and gate against the probability of the target.

    Examples:
    lossbench losses plot cross_entropy focal dft --out losses.png
    """
    from lossbench.plot import plot

    print(plot(names, out))
