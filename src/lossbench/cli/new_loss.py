"""`lossbench new-loss`: the files of a loss of one's own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .application import app


@app.command("new-loss")
def new_loss(
    name: Annotated[str, typer.Argument(help="In snake_case, such as my_loss.")],
    folder: Annotated[
        Path, typer.Option(help="Where the files go to; a checkout of lossbench or a folder of yours.")
    ] = Path(),
) -> None:
    """Write a loss, its configuration and its test; they work as they are, to be changed from there.

    lossbench new-loss my_loss
    lossbench train loss=my_loss
    """
    from lossbench.new_loss import write

    for file in write(name, folder):
        print(file)
