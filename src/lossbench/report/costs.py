"""What a row cost: time, memory, speed, GPU hours; and what was spent on runs that are in no mean."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from lossbench.report import statistics
from lossbench.report.metrics import Metric, describe
from lossbench.report.records import RunRecord, State
from lossbench.report.table import Row, Table, is_usable

COSTS = ("time/train_s", "time/eval_s", "perf/tokens_per_s", "perf/peak_memory_mb", "perf/gpu_hours")
DEVICE_KEYS = ("device", "gpu")  # of the versions that a run records


@dataclass(frozen=True)
class CostRow:
    """Means over the finished seeds of one row, in logged units; None where no seed recorded it."""

    label: str
    index: int
    means: tuple[float | None, ...]
    devices: tuple[str, ...]


@dataclass(frozen=True)
class CostTable:
    """Costs of one table; `metrics` are those that some run recorded."""

    metrics: tuple[Metric, ...]
    rows: tuple[CostRow, ...]


@dataclass(frozen=True)
class Spent:
    """Wall-clock hours of all runs whose duration is known, GPU hours where they are recorded.

    `unused_*` is the part of runs that are in no mean: failed, killed, crashed, running, duplicate.
    """

    runs: int
    hours: float
    gpu_hours: float | None
    unused_runs: int
    unused_hours: float
    unused_gpu_hours: float | None


def cost_table(table: Table) -> CostTable | None:
    """None where no finished run recorded any cost."""
    rows = [_row(row, index) for index, row in enumerate(table.rows)]
    used = [i for i in range(len(COSTS)) if any(row.means[i] is not None for row in rows)]
    if not used:
        return None
    kept = tuple(CostRow(r.label, r.index, tuple(r.means[i] for i in used), r.devices) for r in rows)
    return CostTable(tuple(describe(COSTS[i]) for i in used), kept)


def _row(row: Row, index: int) -> CostRow:
    runs = [run for run in row.variant.runs if is_usable(run)]
    devices = {run.versions[key] for run in runs for key in DEVICE_KEYS if key in run.versions}
    return CostRow(row.label, index, tuple(_mean(runs, name) for name in COSTS), tuple(sorted(devices)))


def _mean(runs: Sequence[RunRecord], name: str) -> float | None:
    metric = describe(name)
    values = [run.metrics[name] for run in runs if name in run.metrics and metric.is_valid(run.metrics[name])]
    return statistics.mean(values) if values else None


def of_table(records: Sequence[RunRecord], table: Table) -> list[RunRecord]:
    """The runs of a table's model and dataset, of any state: what the experiment was, duplicates included."""
    return [record for record in records if (record.model, record.dataset) == (table.model, table.dataset)]


def spent(records: Sequence[RunRecord]) -> Spent | None:
    """Totals over all runs that were started; None where no run says how long it took."""
    timed = [
        r for r in records if r.state is not State.MISSING and r.duration is not None and math.isfinite(r.duration)
    ]
    if not timed:
        return None
    unused = [record for record in timed if not is_usable(record)]
    return Spent(
        len(timed), _hours(timed), _gpu_hours(timed), len(unused), _hours(unused), _gpu_hours(unused),
    )  # fmt: skip


def _hours(records: Sequence[RunRecord]) -> float:
    return math.fsum(record.duration or 0.0 for record in records) / 3600


def _gpu_hours(records: Sequence[RunRecord]) -> float | None:
    known = [{**r.last_values, **r.metrics}.get("perf/gpu_hours") for r in records]
    values = [value for value in known if value is not None and math.isfinite(value)]
    return math.fsum(values) if values else None
