"""`lossbench prepare`: a dataset as Parquet rows of tokens."""

from __future__ import annotations

import json

import typer

from .application import HYDRA, USE, Json, app


@app.command(context_settings=HYDRA, options_metavar="out=FOLDER [--json] [KEY=VALUE]...", rich_help_panel=USE)
def prepare(context: typer.Context, as_json: Json = False) -> None:
    """Write a dataset as Parquet rows of tokens.

    The schema is that of the vision-loss paper's code.

    Examples:
    lossbench prepare dataset=gsm8k model.path=FOLDER-OR-HUB-ID out=data/gsm8k
    lossbench prepare dataset=gsm8k model.path=FOLDER-OR-HUB-ID out=data/exact positions=exact dataset.max_length=256

    Prompts and splits are that paper's unless you choose others; so is positions=seed, which repeats its code's
    positions. Read the files back with dataset=parquet dataset.path=data/gsm8k and the same model.
    """
    from lossbench.app import prepare as prepare_splits

    written = prepare_splits(context.args)
    if as_json:
        rows = [{"path": str(file.path), "rows": file.rows, "truncated": file.truncated} for file in written]
        print(json.dumps(rows, indent=2))
        return
    for file in written:
        print(file)
