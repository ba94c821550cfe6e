"""`lossbench report`: runs in, tables out."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated

import typer

from lossbench.errors import LossbenchError

from .application import COMPARE, Json, app


class NotWholeError(LossbenchError):
    """`--strict`: the report was written, but runs are missing or not finished."""

    exit_code = 3


def _split(text: str | None) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip()) if text else ()


@app.command(rich_help_panel=COMPARE)
def report(
    paths: Annotated[
        list[str], typer.Argument(help="Folders of runs (runs/, a study, single runs), or wandb:ENTITY/PROJECT.")
    ],
    out: Annotated[Path, typer.Option(help="Where the report is written.")] = Path("results"),
    format: Annotated[list[str] | None, typer.Option(help="Formats to write; all but history by default.")] = None,
    baseline: Annotated[
        str | None, typer.Option(help="The loss that others are compared with; else the plan's, else cross_entropy.")
    ] = None,
    metrics: Annotated[str | None, typer.Option(help="Columns, separated by commas, such as test/em,test/ppl.")] = None,
    where: Annotated[str, typer.Option(help="Only runs with, such as 'model=gpt2 seed<3 optimizer.lr>=1e-4'.")] = "",
    since: Annotated[str | None, typer.Option(help="Only runs created at or after this ISO date or time.")] = None,
    group_by: Annotated[str | None, typer.Option(help="Settings that name rows, such as optimizer.lr.")] = None,
    sort: Annotated[str | None, typer.Option(help="The column that orders the rows, best first; or `name`.")] = None,
    include: Annotated[
        str | None, typer.Option(help="Show last values of running, interrupted, crashed or failed runs, in grey.")
    ] = None,
    paper: Annotated[str | None, typer.Option(help="Published figures beside ours: emo or vision_losses.")] = None,
    explain: Annotated[
        str | None, typer.Option(help="Write nothing; say how LOSS:METRIC[:MODEL:DATASET] was made.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Of resampled intervals and sign flips; a fixed one if not given.")
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Exit 3 if a run is missing or not finished.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Serve the page on 127.0.0.1 and keep it up to date.")] = False,
    port: Annotated[int, typer.Option(help="The port of --watch; 0 takes a free one.")] = 8765,
    interval: Annotated[float, typer.Option(help="Seconds between two looks at the runs with --watch.")] = 5.0,
    cache: Annotated[bool, typer.Option(help="Leave files as they are where nothing changed.")] = True,
    api_timeout: Annotated[float, typer.Option(help="Seconds for all requests to wandb together.")] = 300.0,
    api_histories: Annotated[bool, typer.Option("--api-histories", help="Ask wandb for training logs too.")] = False,
    as_json: Json = False,
) -> None:
    """Turn runs into tables, a page, figures and their numbers.

    Examples:
    lossbench report runs/demo --out results/demo
    lossbench report runs --where 'model=tiny seed<3' --explain focal:test/em
    lossbench report runs/demo --watch
    lossbench report runs/demo --format json --json

    The numbers are in the files (report.json, report.csv); --json lists them, and what the report lacks.
    """
    # Before numpy is loaded: the report's products are small, and a second thread would only wait for the first.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from lossbench.report.build import assemble, build
    from lossbench.report.choices import Choices, states
    from lossbench.report.output import CACHE
    from lossbench.report.sources import Options

    choices = Choices(
        baseline=baseline,
        metrics=_split(metrics) or None,
        where=where,
        since=since,
        include=states(_split(include)),
        group_by=_split(group_by),
        sort=sort,
        paper=paper,
        **({} if seed is None else {"seed": seed}),
    )
    api_cache = out / CACHE / "api" if cache else None
    options = Options(api_timeout=api_timeout, api_cache=api_cache, api_histories=api_histories)
    if explain is not None:
        from lossbench.report import explain as explained

        print(explained.explain(assemble(paths, choices, options=options).tables, explain), end="")
        return
    if watch:
        from lossbench.report.watch import watch as keep_up_to_date

        keep_up_to_date(paths, out, choices, options, formats=format, port=port, interval=interval)
        return
    made = build(paths, out, formats=format, choices=choices, options=options, cache=cache)
    if as_json:
        found = {"files": [str(file) for file in made.files], "new": made.is_fresh, "lacks": made.lacks}
        print(json.dumps(found | {"problems": len(made.problems)}, indent=2))
    else:
        made.print()
    if strict and made.lacks:
        raise NotWholeError(f"--strict: the report is written, but it lacks runs: {', '.join(made.lacks)}.")
