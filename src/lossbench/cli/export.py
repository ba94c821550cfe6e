"""`lossbench export`: a run's model as a Hugging Face folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from .application import USE, Json, app


@app.command(rich_help_panel=USE)
def export(
    run: Annotated[str, typer.Argument(metavar="RUN", help="The folder of a finished run, or a checkpoint in one.")],
    merge: Annotated[bool, typer.Option("--merge", help="Make LoRA part of the weights.")] = False,
    out: Annotated[Path | None, typer.Option(help="A folder that is not there yet: RUN/export.")] = None,
    as_json: Json = False,
) -> None:
    """Write a run's model as a Hugging Face folder.

    Weights, tokenizer, generation config and a model card; `from_pretrained` reads it.

    Examples:
    lossbench export runs/demo/NAME-ID --merge --out my-model
    lossbench evaluate my-model dataset=gsm8k
    """
    from lossbench.export import export as write

    made = write(run, out, merge=merge)
    if as_json:
        print(json.dumps({"folder": str(made.folder), "kind": made.kind, "notes": list(made.notes)}, indent=2))
        return
    for sentence in made.notes:
        print(sentence)
    print(made.folder)
