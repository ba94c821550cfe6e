"""`lossbench dashboard`: the study's panels on wandb."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from .application import AROUND, Json, app


@app.command(rich_help_panel=AROUND)
def dashboard(
    target: Annotated[str, typer.Argument(metavar="wandb:ENTITY/PROJECT", help="The project that holds the runs.")],
    study: Annotated[str | None, typer.Option(help="One study of the project; all of them by default.")] = None,
    as_json: Json = False,
) -> None:
    """Show a study on wandb: a saved workspace and a report.

    They are made, or brought up to date where they are there already.

    Examples:
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
