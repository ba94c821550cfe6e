"""`lossbench new-loss`: the files of a loss of one's own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from .application import LOSSES, Json, app


@app.command("new-loss", rich_help_panel=LOSSES)
def new_loss(
    name: Annotated[str, typer.Argument(help="In snake_case, such as my_loss.")],
    folder: Annotated[
        Path, typer.Option(help="Where the files go to; a checkout of lossbench or a folder of yours.")
    ] = Path(),
    as_json: Json = False,
) -> None:
    """Write a loss of your own: its class, its configuration, its test.

    They work as they are, to be changed from there.

    Examples:
    lossbench new-loss my_loss
    lossbench train loss=my_loss
    """
    from lossbench.new_loss import write

    written = write(name, folder)
    if as_json:
        print(json.dumps({"files": [str(file) for file in written]}, indent=2))
        return
    for file in written:
        print(file)
