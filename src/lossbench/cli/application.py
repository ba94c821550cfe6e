"""The application that every command registers itself with, and options that several of them share."""

from __future__ import annotations

from typing import Annotated

import typer

from lossbench import __version__

app = typer.Typer(
    name="lossbench",
    help="Which training loss should I use to fine-tune my language model?",
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
