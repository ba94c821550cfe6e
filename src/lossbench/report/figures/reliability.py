"""Reliability diagrams: accuracy in bins of confidence, against the diagonal of perfect calibration."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lossbench.report.figures import Figure
from lossbench.report.figures._axes import (
    BOTTOM,
    HEIGHT,
    LEFT,
    MAX_LABELS,
    TOP,
    chart,
    dot,
    frame,
    labels,
    line,
    right_edge,
)
from lossbench.report.svg import Scale, element, path

if TYPE_CHECKING:
    from lossbench.report.build import Report

ORDER = 40
ON_PAGE = True


def draw(report: Report, index: int) -> Figure | None:
    """One diagram with a curve a loss."""
    curves = report.reliability[index] if report.reliability else ()
    if not curves:
        return None
    is_crowded = len(curves) > MAX_LABELS
    right = right_edge(is_crowded)
    x, y = Scale(0.0, 1.0, LEFT, right), Scale(0.0, 1.0, HEIGHT - BOTTOM, TOP)
    parts = frame(x, y, "Share that was right", f"confidence in the {curves[0].of}", right)
    parts.append(element("path", d=path([(x(0.0), y(0.0)), (x(1.0), y(1.0))]), class_="zero"))
    ends = []
    for curve in reversed(curves):
        points = [(x(b.confidence), y(b.accuracy)) for b in curve.bins]
        most = max(b.count for b in curve.bins)
        parts.append(line(points, curve.index))
        if not is_crowded:  # dots of many curves would only cover each other
            parts += [dot(*p, curve.index, 2.0 + 3.0 * b.count / most) for p, b in zip(points, curve.bins, strict=True)]
        ends.append((curve.label, curve.index, *points[-1]))
    if not is_crowded:
        parts += labels(ends[::-1], right)
    errors = ", ".join(f"{curve.label} {curve.ece:.3f}" for curve in curves)
    caption = (
        "Below the dotted diagonal a model is surer than it is right. A dot is a bin of confidence, larger with more "
        f"answers; all finished seeds together. Expected calibration error, mean over seeds: {errors}."
    )
    legend = tuple((curve.label, curve.index) for curve in curves) if is_crowded else ()
    return Figure("Reliability", (chart(parts, f"Reliability diagram. {errors}."),), caption, legend)
