"""`report.csv`: one row a cell, in full precision and logged units (tidy). `runs.csv`: one row a run (wide).

`pairs.csv`: one row a pair of checkpoints that were compared example by example.
"""

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
    "rank", "baseline", "difference", "difference_low", "difference_high", "is_ratio", "relative", "p", "p_holm",
    "test", "seeds", "values",
)  # fmt: skip
RUN_COLUMNS = (
    "id", "name", "study", "group", "loss", "variant", "model", "dataset", "seed", "state", "attempt", "created",
    "finished", "seconds", "last_step", "checkpoint_step", "checkpoint_criterion", "source", "location", "url",
    "heartbeat", "tags", "planned", "error",
)  # fmt: skip


PAIR_COLUMNS = (
    "model", "dataset", "loss", "baseline", "seed", "common", "total", "only_loss", "only_baseline", "mcnemar_p",
    "em", "em_low", "em_high", "em_p", "nll", "nll_low", "nll_high", "nll_p", "note",
)  # fmt: skip


def write(report: Report) -> dict[str, str]:
    """The files; that of the pairs only where checkpoints were compared."""
    columns, _ = run_columns(report)
    files = {"report.csv": _text(CELL_COLUMNS, cell_rows(report)), "runs.csv": _text(columns, run_rows(report))}
    return files | ({"pairs.csv": _text(PAIR_COLUMNS, _pair_rows(report))} if any(report.pairs) else {})


def _pair_rows(report: Report) -> list[list[object]]:
    """One row a pair of checkpoints, in the order of `PAIR_COLUMNS`; differences are this loss minus the baseline."""
    return [
        [
            table.model, table.dataset, pair.label, pair.baseline, pair.seed, pair.common, pair.total, pair.only_loss,
            pair.only_baseline, pair.mcnemar,
            *((b.estimate, b.low, b.high, b.p) if (b := pair.em) else (None,) * 4),
            *((b.estimate, b.low, b.high, b.p) if (b := pair.nll) else (None,) * 4),
            pair.note,
        ]
        for table, pairs in zip(report.tables, report.pairs, strict=True)
        for pair in pairs
    ]  # fmt: skip


def cell_rows(report: Report) -> list[list[object]]:
    """One row a cell, in the order of `CELL_COLUMNS`."""
    return [_cell(table, row, cell) for table in report.tables for row in table.rows for cell in row.cells]


def run_columns(report: Report) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(all columns, those of them that are metrics) of `run_rows`."""
    metrics = tuple(sorted({name for record in report.records for name in record.metrics}))
    return (*RUN_COLUMNS, *metrics), metrics


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
        cell.rank,
        cell.comparison.baseline if cell.comparison else None,
        *((found.estimate, found.low, found.high) if found else (None, None, None)),
        int(cell.metric.is_log_mean) if found else None,
        cell.comparison.relative if cell.comparison else None,
        found.p if found else None,
        cell.comparison.p_holm if cell.comparison else None,
        found.method if found else None,
        " ".join(str(seed) for seed, _ in cell.values),
        " ".join(repr(value) for _, value in cell.values),
    ]


def run_rows(report: Report) -> list[list[object]]:
    """One row a run, in the order of `run_columns`."""
    labels = {(run.id, run.location): variant.label for variant in report.variants for run in variant.runs}
    _, metrics = run_columns(report)
    rows: list[list[object]] = []
    for record in report.records:
        values = (as_json(record.metrics.get(name)) for name in metrics)
        label = labels.get((record.id, record.location))
        rows.append(
            [
                record.id, record.name, record.study, record.group, record.loss, label, record.model, record.dataset,
                record.seed, str(record.state), record.attempt, record.created, record.finished, record.duration,
                record.last_step, record.checkpoint_step, record.checkpoint_criterion, record.source, record.location,
                record.url, record.heartbeat, " ".join(record.tags), int(record.planned), record.error,
                *values,
            ]
        )  # fmt: skip
    return rows


def _text(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return buffer.getvalue()
