"""The application that every command registers itself with, and options that several of them share."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from lossbench import __version__
from lossbench.errors import nearest

HELP = """Which training loss should I use to fine-tune my language model?

Examples:
lossbench train loss=focal seed=1
lossbench train -m loss=cross_entropy,focal seed=0,1,2
lossbench runs default
lossbench report runs/default
lossbench losses show focal

Exit codes:
0  fine
1  a run or a check failed, or a model or dataset cannot be used
2  wrong usage or configuration, or a name that is not there
3  report --strict: runs are missing or not finished
4  wandb, the model hub or SLURM refuses, or cannot be reached
5  a file or folder cannot be written
130  ended by Ctrl-C (a run by signal N: 128 + N)

Results go to stdout, progress and warnings to stderr. NO_COLOR=1 turns colours off.
"""
COMPARE, USE, LOSSES, AROUND = "Train and compare", "Models and data", "Losses", "Around it"
ORDER = (
    "train", "runs", "report", "diff", "evaluate", "export", "prepare", "losses", "new-loss", "doctor", "dashboard",
)  # fmt: skip


class InOrder(TyperGroup):
    """Lists the commands as they are used one after another; typer would list those with commands of their own last."""

    def list_commands(self, ctx: Any) -> list[str]:
        return sorted(super().list_commands(ctx), key=ORDER.index)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] not in self.commands and not args[0].startswith("-"):
            ctx.fail(f"No such command {args[0]!r}.{nearest(args[0], self.commands)}")
        return super().resolve_command(ctx, args)


app = typer.Typer(
    name="lossbench",
    cls=InOrder,
    help=HELP,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
HYDRA = {"allow_extra_args": True, "ignore_unknown_options": True}  # the rest of the line is Hydra's
Json = Annotated[bool, typer.Option("--json", help="Machine-readable output on stdout.")]


def _version(asked: bool) -> None:
    if asked:
        print(__version__)
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Say the version.")
    ] = False,
) -> None:
    pass
