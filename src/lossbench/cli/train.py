"""`lossbench train`: Hydra's command line."""

from __future__ import annotations

import sys

import typer

from .application import COMPARE, HYDRA, app


@app.command(
    context_settings={**HYDRA, "help_option_names": []},
    add_help_option=False,
    options_metavar="[-m] [KEY=VALUE]...",
    rich_help_panel=COMPARE,
)
def train(context: typer.Context) -> None:
    """Fine-tune under a loss, evaluate and record it; with -m a whole sweep.

    Examples:
    lossbench train loss=focal seed=1
    lossbench train -m loss=cross_entropy,focal seed=0,1,2
    lossbench train -m sweep=demo hydra/launcher=slurm sweep.dry_run=true
    lossbench train loss=focal --cfg job

    The arguments are Hydra's, as those of `python train.py`; `lossbench train --help` lists groups and keys.
    """
    from lossbench.app import main as hydra_main

    sys.argv = ["lossbench train", *context.args]
    hydra_main()
