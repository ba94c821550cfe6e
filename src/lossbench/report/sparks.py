"""Graphics of a table cell's size: the seeds behind a mean, and a difference with its interval.

Their colour is the `--c` of the table row that they stand in.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from lossbench.report.svg import Scale, element
from lossbench.report.table import Cell

WIDTH, HEIGHT = 112.0, 12.0
FOREST_WIDTH, FOREST_HEIGHT = 220.0, 22.0


def seed_range(cells: Sequence[Cell]) -> tuple[float, float] | None:
    """Lowest and highest value of a column; None where its dots would all lie on one spot."""
    values = [value for cell in cells for _, value in cell.values]
    if len(values) < 2 or min(values) == max(values):
        return None
    return min(values), max(values)


def seed_dots(cell: Cell, extent: tuple[float, float] | None) -> str:
    """A dot a seed on the column's common scale, and a bar at the mean; empty where there is nothing to see."""
    if extent is None or cell.mean is None:
        return ""
    x = Scale(extent[0], extent[1], 4.0, WIDTH - 4.0)
    parts = []
    if cell.n > 1:
        parts.append(element("path", d=f"M{x(cell.mean):.0f} 1v{HEIGHT - 2:.0f}"))
    # Lines of no length with round caps, the last path: a short one however many seeds there are.
    parts.append(element("path", d="".join(f"M{x(value):.0f} {HEIGHT / 2:.0f}h0" for _, value in cell.values)))
    return element(
        "svg",
        "".join(parts),
        viewBox=f"0 0 {WIDTH:.0f} {HEIGHT:.0f}",
        class_="dots",
        aria_hidden="true",
    )


def forest_scale(cells: Sequence[Cell]) -> Scale | None:
    """A common scale of a column's differences, with "no difference" inside; logarithmic for ratios."""
    values: list[float] = []
    for cell in cells:
        if cell.comparison is not None:
            found = cell.comparison.difference
            values += [bound for bound in (found.estimate, found.low, found.high) if bound is not None]
    if not values:
        return None
    is_ratio = cells[0].metric.is_log_mean
    values.append(1.0 if is_ratio else 0.0)
    low, high = min(values), max(values)
    if low == high or (is_ratio and (low <= 0 or not math.isfinite(high))):
        return None
    return Scale(low, high, 8.0, FOREST_WIDTH - 8.0, is_ratio)


def forest(cell: Cell, scale: Scale | None) -> str:
    """Estimate and interval of one difference, with a line at "no difference"."""
    if scale is None or cell.comparison is None:
        return ""
    found = cell.comparison.difference
    zero = scale(1.0 if cell.metric.is_log_mean else 0.0)
    middle = FOREST_HEIGHT / 2
    # The line of "no difference" comes before the interval: the page's style tells them apart by their order.
    parts = [element("path", d=f"M{zero:.0f} 0v{FOREST_HEIGHT:.0f}")]
    if found.low is not None and found.high is not None:
        low, high = scale(found.low), scale(found.high)
        parts.append(element("path", d=f"M{low:.0f} {middle - 4:.0f}v8m0-4H{high:.0f}m0-4v8"))
    parts.append(element("circle", cx=round(scale(found.estimate)), cy=middle, r=4.0))
    return element(
        "svg",
        "".join(parts),
        viewBox=f"0 0 {FOREST_WIDTH:.0f} {FOREST_HEIGHT:.0f}",
        class_="forest",
        aria_hidden="true",
    )
