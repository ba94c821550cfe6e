"""Learning curves: mean over seeds and the band from the lowest to the highest seed, for each loss."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from lossbench.report.memo import remembered
from lossbench.report.records import State
from lossbench.report.statistics import mean
from lossbench.report.table import Table

# (metric, title of the panel); both are comparable across losses, unlike the objective itself.
PANELS = (("val/nll", "Validation NLL"), ("train/cross_entropy", "Training cross-entropy"))
MAX_POINTS, MIN_POINTS = 80, 20
BUDGET = 8_000  # points of all curves of a report


@dataclass(frozen=True)
class Curve:
    """One loss in one panel: parallel lists. `index` is the table's row, `block` the log entries averaged a point."""

    label: str
    index: int
    seeds: int
    steps: tuple[float, ...]
    mean: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    block: int = 1


@dataclass(frozen=True)
class Panel:
    """All curves of one metric."""

    metric: str
    title: str
    curves: tuple[Curve, ...]


def read_panels(table: Table, rows_in_all: int | None = None) -> tuple[list[Panel], dict[str, tuple[str, ...]]]:
    """The panels of a table's finished runs, and problems of their logs by run location.

    The log of every other run is read as well, but for its damage alone. `rows_in_all` are those of all tables of the
    report (of this one if None): many rows get coarser curves.
    """
    rows = len(table.rows) if rows_in_all is None else rows_in_all
    points_each = min(MAX_POINTS, max(MIN_POINTS, BUDGET // max(1, rows * len(PANELS))))
    keys = tuple(key for key, _ in PANELS)
    problems: dict[str, tuple[str, ...]] = {}
    collected: dict[str, list[Curve]] = {key: [] for key in keys}
    for index, row in enumerate(table.rows):
        series: dict[str, list[dict[int, float]]] = {key: [] for key in keys}
        for run in row.variant.runs:
            if run.state is State.MISSING:
                continue
            history = remembered("history", run, partial(run.read_history, keys))
            if said := (*history.problems, *_replaced(history.overlap)):
                problems[run.location] = said
            if not run.state.is_ended:
                continue
            for key in keys:
                points = {step: value for step, value in history.series.get(key, []) if math.isfinite(value)}
                if len(points) >= 2:
                    series[key].append(points)
        for key in keys:
            if series[key]:
                collected[key].append(make_curve(row.label, index, series[key], points_each))
    panels = [Panel(key, title, tuple(collected[key])) for key, title in PANELS if collected[key]]
    return panels, problems


def _replaced(overlap: int) -> tuple[str, ...]:
    rows = "1 row" if overlap == 1 else f"{overlap} rows"
    return (
        (f"Of {rows} of its curves a later attempt logged the steps again; the later ones count.",) if overlap else ()
    )


def make_curve(label: str, index: int, seeds: Sequence[dict[int, float]], max_points: int = MAX_POINTS) -> Curve:
    """Mean, minimum and maximum over seeds at the steps that all of them logged.

    If seeds share fewer than two steps, every step of any seed is a point of its own. More than `max_points` points are
    averaged in blocks of neighbours. A step that was logged twice (a resumed run) counts by its later value.
    """
    common = set.intersection(*(set(points) for points in seeds))
    steps = sorted(common if len(common) >= 2 else set.union(*(set(points) for points in seeds)))
    rows = []
    for step in steps:
        values = [points[step] for points in seeds if step in points]
        rows.append((float(step), mean(values), min(values), max(values)))
    block = math.ceil(len(rows) / max_points)
    if block > 1:
        blocks = [rows[start : start + block] for start in range(0, len(rows), block)]
        rows = [tuple(mean(column) for column in zip(*part, strict=True)) for part in blocks]  # type: ignore[misc]
    columns = list(zip(*rows, strict=True))
    return Curve(label, index, len(seeds), columns[0], columns[1], columns[2], columns[3], block)
