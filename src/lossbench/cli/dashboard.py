"""`lossbench dashboard`: the study's panels on wandb."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from .application import Json, app


@app.command()
def dashboard(
    target: Annotated[str, typer.Argument(metavar="wandb:ENTITY/PROJECT", help="The project that holds the runs.")],
    study: Annotated[str | None, typer.Option(help="One study of the project; all of them by default.")] = None,
    as_json: Json = False,
) -> None:
    """Make a saved workspace and report on wandb with the study's panels, or bring them up to date.

    lossbench dashboard wandb:my-team/lossbench --study demo
    """
    from lossbench.dashboard import make

    made = make(target, study)
    if as_json:
        print(json.dumps({"new": made.is_new, "workspace": made.workspace, "report": made.report}, indent=2))
        return
    print(f"{'Made' if made.is_new else 'Updated'}:")
    print(f"  workspace  {made.workspace}")
    print(f"  report     {made.report}")
