"""`lossbench train`: Hydra's command line."""

from __future__ import annotations

import sys

import typer

from .application import HYDRA, app


@app.command(
    context_settings={**HYDRA, "help_option_names": []}, add_help_option=False, options_metavar="[-m] [KEY=VALUE]..."
)
def train(context: typer.Context) -> None:
    """Fine-tune under a loss; takes Hydra's arguments, like `python train.py`.

    lossbench train loss=focal seed=1
    lossbench train -m loss=cross_entropy,focal seed=0,1,2
    """
    from lossbench.app import main as hydra_main

    sys.argv = ["lossbench train", *context.args]
    hydra_main()
