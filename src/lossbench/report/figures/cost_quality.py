"""Quality against cost: which losses are worth their time. The front joins those that no other beats in both."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lossbench.report.figures import Figure, hue
from lossbench.report.figures._axes import (
    BOTTOM,
    HEIGHT,
    LEFT,
    MAX_LABELS,
    TOP,
    chart,
    dot,
    frame,
    names_beside,
    padded,
    right_edge,
)
from lossbench.report.formatting import heading
from lossbench.report.metrics import Metric
from lossbench.report.svg import Scale, element, path
from lossbench.report.table import Cell, Row, make_cell

if TYPE_CHECKING:
    from lossbench.report.build import Report

ORDER = 30
ON_PAGE = True
COSTS = ("perf/gpu_hours", "time/train_s")  # the first that at least two rows recorded


@dataclass(frozen=True)
class Point:
    """One loss: mean cost and mean quality, in printed units, with their deviations (0 for one seed)."""

    label: str
    index: int
    cost: float
    quality: float
    cost_sd: float
    quality_sd: float


def draw(report: Report, index: int) -> Figure | None:
    """The first ranked column against the cost of training."""
    table = report.tables[index]
    place = next((i for i, metric in enumerate(table.metrics) if metric.is_ranked and metric.direction), None)
    if place is None:
        return None
    quality = table.metrics[place]
    from lossbench.report.metrics import describe

    for name in COSTS:
        cost = describe(name)
        points = [
            point for i, row in enumerate(table.rows) if (point := _point(row, i, place, make_cell(row.variant, cost)))
        ]
        if len(points) >= 2:
            return _figure(points, quality, cost)
    return None


def _point(row: Row, index: int, place: int, cost: Cell) -> Point | None:
    quality = row.cells[place]
    if cost.mean is None or quality.mean is None:
        return None
    scale, unit = quality.metric.scale, cost.metric.scale
    return Point(
        row.label, index, cost.mean * unit, quality.mean * scale, (cost.sd or 0.0) * unit, (quality.sd or 0.0) * scale
    )


def front(points: list[Point], higher_is_better: bool) -> list[Point]:
    """The points that no other beats in cost and quality, by rising cost."""
    sign = 1.0 if higher_is_better else -1.0
    best = float("-inf")
    kept = []
    for point in sorted(points, key=lambda p: (p.cost, -sign * p.quality, p.label)):
        if sign * point.quality > best:
            best = sign * point.quality
            kept.append(point)
    return kept


def _figure(points: list[Point], quality: Metric, cost: Metric) -> Figure:
    is_crowded = len(points) > MAX_LABELS
    right, bottom = right_edge(is_crowded=True), HEIGHT - BOTTOM
    x = Scale(*padded(min(p.cost - p.cost_sd for p in points), max(p.cost + p.cost_sd for p in points)), LEFT, right)
    spans = padded(min(p.quality - p.quality_sd for p in points), max(p.quality + p.quality_sd for p in points))
    y = Scale(*spans, bottom, TOP)
    better = "up" if quality.direction == "higher" else "down"
    parts = frame(x, y, f"{heading(quality)}, better is {better}", f"{heading(cost)}, better is left", right)
    best = front(points, quality.direction == "higher")
    steps = [(x(best[0].cost), y(best[0].quality))]
    for point in best[1:]:
        steps += [(x(point.cost), steps[-1][1]), (x(point.cost), y(point.quality))]
    parts.append(element("path", d=path(steps), class_="front"))
    for point in reversed(points):
        across = path(
            [(x(point.cost - point.cost_sd), y(point.quality)), (x(point.cost + point.cost_sd), y(point.quality))]
        )
        upright = path(
            [(x(point.cost), y(point.quality - point.quality_sd)), (x(point.cost), y(point.quality + point.quality_sd))]
        )
        parts.append(element("path", d=across + upright, class_="whisker", style=hue(point.index)))
        parts.append(dot(x(point.cost), y(point.quality), point.index, 5.0))
    if not is_crowded:
        parts += names_beside([(p.label, p.index, x(p.cost), y(p.quality)) for p in points], right)
    names = ", ".join(point.label for point in best)
    caption = (
        f"A point is a loss: means over finished seeds, bars one standard deviation. The dotted line is the front: no "
        f"loss has both a better mean and a lower cost than {names}. It is drawn through means, seed noise included."
    )
    description = f"{heading(quality)} against {heading(cost)}; on the front: {names}."
    legend = tuple((point.label, point.index) for point in points) if is_crowded else ()
    return Figure("Cost against quality", (chart(parts, description),), caption, legend)
