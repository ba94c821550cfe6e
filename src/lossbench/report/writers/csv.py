"""`report.csv`: one row a cell, in full precision and logged units (tidy). `runs.csv`: one row a run (wide)."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from lossbench.report.numbers import as_json
from lossbench.report.table import Cell, Row, Table

if TYPE_CHECKING:
    from lossbench.report.build import Report

CELL_COLUMNS = (
    "model", "dataset", "loss", "is_baseline", "metric", "n", "expected", "absent", "mean", "sd", "low", "high", "mark",
    "baseline", "difference", "difference_low", "difference_high", "is_ratio", "p", "p_holm", "test", "seeds", "values",
)  # fmt: skip
RUN_COLUMNS = (
    "id", "name", "study", "loss", "variant", "model", "dataset", "seed", "state", "attempt", "created", "finished",
    "seconds", "last_step", "checkpoint_step", "source", "location", "error",
)  # fmt: skip


def write(report: Report) -> dict[str, str]:
    """Both files."""
    cells = [_cell(table, row, cell) for table in report.tables for row in table.rows for cell in row.cells]
    return {"report.csv": _text(CELL_COLUMNS, cells), "runs.csv": _runs(report)}


def _cell(table: Table, row: Row, cell: Cell) -> list[object]:
    found = cell.comparison.difference if cell.comparison else None
    return [
        table.model,
        table.dataset,
        row.label,
        int(row.is_baseline),
        cell.metric.name,
        cell.n,
        cell.expected,
        cell.absence,
        *map(as_json, (cell.mean, cell.sd, cell.low, cell.high)),
        cell.mark,
        cell.comparison.baseline if cell.comparison else None,
        *((found.estimate, found.low, found.high) if found else (None, None, None)),
        int(cell.metric.is_log_mean) if found else None,
        found.p if found else None,
        cell.comparison.p_holm if cell.comparison else None,
        found.method if found else None,
        " ".join(str(seed) for seed, _ in cell.values),
        " ".join(repr(value) for _, value in cell.values),
    ]


def _runs(report: Report) -> str:
    labels = {run.id: variant.label for variant in report.variants for run in variant.runs}
    metrics = sorted({name for record in report.records for name in record.metrics})
    rows = []
    for record in report.records:
        values = (as_json(record.metrics.get(name)) for name in metrics)
        rows.append(
            [
                record.id, record.name, record.study, record.loss, labels.get(record.id), record.model, record.dataset,
                record.seed, str(record.state), record.attempt, record.created, record.finished, record.duration,
                record.last_step, record.checkpoint_step, record.source, record.location, record.error, *values,
            ]
        )  # fmt: skip
    return _text((*RUN_COLUMNS, *metrics), rows)


def _text(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return buffer.getvalue()
