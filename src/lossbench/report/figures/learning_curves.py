"""Validation NLL and training cross-entropy over steps: mean line and min-max band of every loss."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from lossbench.report.curves import Curve, Panel
from lossbench.report.figures import Figure, hue
from lossbench.report.figures._axes import BOTTOM, HEIGHT, LEFT, MAX_LABELS, TOP, chart, frame, labels, line, right_edge
from lossbench.report.svg import Scale, element, path

if TYPE_CHECKING:
    from lossbench.report.build import Report

ORDER = 10
ON_PAGE = True
LOG_FROM = 8.0  # highest over lowest value from which the axis is logarithmic


def draw(report: Report, index: int) -> Figure | None:
    """One drawing a panel."""
    panels = report.panels[index]
    if not panels:
        return None
    series = {curve.label: curve.index for panel in panels for curve in panel.curves}
    is_crowded = len(series) > MAX_LABELS
    seeds = sorted({curve.seeds for panel in panels for curve in panel.curves})
    count = str(seeds[0]) if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
    noun = "seed" if seeds[-1] == 1 else "seeds"
    caption = f"Line: mean over the finished seeds ({count} {noun} a loss)."
    if not is_crowded:
        caption += " Band: lowest to highest seed."
    blocks = max(curve.block for panel in panels for curve in panel.curves)
    if blocks > 1:
        caption += f" Long logs are averaged over up to {blocks} neighbouring entries."
    drawings = tuple(draw_panel(panel, is_crowded) for panel in panels)
    return Figure("Learning curves", drawings, caption, tuple(series.items()) if is_crowded else ())


def draw_panel(panel: Panel, is_crowded: bool = False) -> str:
    """One SVG. A crowded one has neither labels nor bands: both would only cover each other."""
    right, bottom = right_edge(is_crowded), HEIGHT - BOTTOM
    low = min(value for curve in panel.curves for value in curve.low)
    high = max(value for curve in panel.curves for value in curve.high)
    is_log = low > 0 and high / low >= LOG_FROM
    margin = (high / low) ** 0.04 if is_log else 0.04 * (high - low)
    span = (low / margin, high * margin) if is_log else (low - margin, high + margin)
    y = Scale(*span, bottom, TOP, is_log)
    steps = [step for curve in panel.curves for step in (curve.steps[0], curve.steps[-1])]
    x = Scale(min(steps), max(steps), LEFT, right)

    title = f"{panel.title} (nats{', log scale' if is_log else ''})"
    parts = frame(x, y, title, "optimizer step", right)
    # Bands first, then lines, the baseline last: it is the one that others are read against.
    ordered = sorted(panel.curves, key=lambda curve: -curve.index)
    if not is_crowded:
        parts += [_band(curve, x, y) for curve in ordered if curve.seeds > 1]
    parts += [line(_points(curve, curve.mean, x, y), curve.index, coarse=is_crowded) for curve in ordered]
    if not is_crowded:
        ends = [(curve.label, curve.index, x(curve.steps[-1]), y(curve.mean[-1])) for curve in panel.curves]
        parts += labels(ends, right)
    losses = ", ".join(f"{curve.label} ends at {curve.mean[-1]:.3g}" for curve in panel.curves[:MAX_LABELS])
    return chart(parts, f"{panel.title} over optimizer steps: {losses}.")


def _points(curve: Curve, values: Sequence[float], x: Scale, y: Scale) -> list[tuple[float, float]]:
    return [(x(step), y(value)) for step, value in zip(curve.steps, values, strict=True)]


def _band(curve: Curve, x: Scale, y: Scale) -> str:
    outline = [*_points(curve, curve.high, x, y), *reversed(_points(curve, curve.low, x, y))]
    return element("path", d=path(outline, closed=True), class_="band", style=hue(curve.index))
