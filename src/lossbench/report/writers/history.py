"""`history.parquet`: every number of every training log, one row a run, key and step. Written when it is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lossbench.report.records import State
from lossbench.report.writers.parquet import to_parquet

if TYPE_CHECKING:
    from lossbench.report.build import Report

COLUMNS = (
    ("run", str), ("study", str), ("loss", str), ("model", str), ("dataset", str), ("seed", int), ("state", str),
    ("key", str), ("step", int), ("value", float),
)  # fmt: skip


def by_default(report: Report) -> bool:
    """False: it may be larger than all other files together."""
    return False


def write(report: Report) -> dict[str, bytes]:
    """One file. Of a step that several attempts of a run logged, the last one's rows; of runs of any state."""
    columns: list[list[object]] = [[] for _ in COLUMNS]
    for run in report.records:
        if run.state is State.MISSING:
            continue
        for key, points in sorted(run.read_history(None).series.items()):
            steps, values = zip(*points, strict=True)
            about = (run.id, run.study, run.loss, run.model, run.dataset, run.seed, str(run.state), key)
            for column, value in zip(columns, about, strict=False):
                column += [value] * len(points)
            columns[-2] += steps
            columns[-1] += values
    return {
        "history.parquet": to_parquet(
            [(name, kind, cells) for (name, kind), cells in zip(COLUMNS, columns, strict=True)]
        )
    }
