"""Differences to the baseline with their intervals, one drawing a metric. The page has them in its tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lossbench.report.figures import Figure, hue
from lossbench.report.figures._axes import LABEL_CHARACTERS, WIDTH, chart, dot
from lossbench.report.findings import difference_text
from lossbench.report.formatting import clipped, heading
from lossbench.report.svg import Scale, element, path, text, tick_label
from lossbench.report.table import Cell, Table

if TYPE_CHECKING:
    from lossbench.report.build import Report

ORDER = 20
ON_PAGE = False
LEFT, RIGHT, TOP, ROW = 140.0, 180.0, 34.0, 22.0


def draw(report: Report, index: int) -> Figure | None:
    """One drawing for each ranked column that has differences."""
    table = report.tables[index]
    drawings = tuple(d for i, metric in enumerate(table.metrics) if metric.is_ranked and (d := _drawing(table, i)))
    return Figure("Differences", drawings, "Differences to the baseline, 95 % t intervals.") if drawings else None


def _drawing(table: Table, column: int) -> str | None:
    metric = table.metrics[column]
    rows = [(i, row.label, row.cells[column]) for i, row in enumerate(table.rows) if row.cells[column].comparison]
    scale = _scale([cell for *_, cell in rows])
    if scale is None:
        return None
    bottom = TOP + ROW * len(rows)
    ratio = metric.is_log_mean
    factor = 1.0 if ratio else metric.scale
    parts = [
        text(
            0.0,
            14.0,
            f"{'Ratio' if ratio else 'Difference'} to {table.baseline}: {heading(metric)}",
            class_="panel-title",
        )
    ]
    zero = scale(1.0 if ratio else 0.0)
    parts.append(element("path", d=path([(zero, TOP - 8), (zero, bottom)]), class_="zero"))
    for tick in scale.ticks():
        parts.append(text(scale(tick), bottom + 18, tick_label(tick * factor), class_="tick", text_anchor="middle"))
    parts.append(element("path", d=path([(LEFT, bottom), (WIDTH - RIGHT, bottom)]), class_="axis"))
    for place, (index, label, cell) in enumerate(rows):
        assert cell.comparison is not None
        found = cell.comparison.difference
        y = TOP + ROW * (place + 0.5)
        parts.append(text(LEFT - 10, y + 4, clipped(label, LABEL_CHARACTERS), class_="series", text_anchor="end"))
        if found.low is not None and found.high is not None:
            parts.append(
                element(
                    "path", d=path([(scale(found.low), y), (scale(found.high), y)]), class_="whisker", style=hue(index)
                )
            )
        parts.append(dot(scale(found.estimate), y, index))
        parts.append(text(WIDTH - RIGHT + 12, y + 4, difference_text(found, metric), class_="tick"))
    return chart(parts, f"Differences to {table.baseline} in {metric.label}.", bottom + 26)


def _scale(cells: list[Cell]) -> Scale | None:
    from lossbench.report.sparks import forest_scale

    found = forest_scale(cells)
    return None if found is None else Scale(found.low, found.high, LEFT, WIDTH - RIGHT, found.is_log)
