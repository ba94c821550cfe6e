"""Validation NLL and training cross-entropy over steps: mean line and min-max band of every loss."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lossbench.report.curves import Curve, Panel
from lossbench.report.figures import Figure, dash, hue
from lossbench.report.svg import Scale, element, path, spread, text, tick_label

if TYPE_CHECKING:
    from lossbench.report.build import Report

ORDER = 10
WIDTH, HEIGHT = 560.0, 320.0
LEFT, RIGHT, TOP, BOTTOM = 46.0, 152.0, 34.0, 40.0
MAX_LABELS = 10
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
    right = WIDTH - (16.0 if is_crowded else RIGHT)
    bottom = HEIGHT - BOTTOM
    low = min(value for curve in panel.curves for value in curve.low)
    high = max(value for curve in panel.curves for value in curve.high)
    is_log = low > 0 and high / low >= LOG_FROM
    margin = (high / low) ** 0.04 if is_log else 0.04 * (high - low)
    span = (low / margin, high * margin) if is_log else (low - margin, high + margin)
    y = Scale(*span, bottom, TOP, is_log)
    steps = [step for curve in panel.curves for step in (curve.steps[0], curve.steps[-1])]
    x = Scale(min(steps), max(steps), LEFT, right)

    parts = [text(0.0, 14.0, f"{panel.title} (nats{', log scale' if is_log else ''})", class_="panel-title")]
    for tick in y.ticks():
        parts.append(element("path", d=path([(LEFT, y(tick)), (right, y(tick))]), class_="grid"))
        parts.append(text(LEFT - 8, y(tick) + 4, tick_label(tick), class_="tick", text_anchor="end"))
    for tick in x.ticks():
        parts.append(text(x(tick), bottom + 18, tick_label(tick), class_="tick", text_anchor="middle"))
    parts.append(element("path", d=path([(LEFT, bottom), (right, bottom)]), class_="axis"))
    parts.append(text((LEFT + right) / 2, HEIGHT - 4, "optimizer step", class_="tick", text_anchor="middle"))
    # Bands first, then lines, the baseline last: it is the one that others are read against.
    ordered = sorted(panel.curves, key=lambda curve: -curve.index)
    if not is_crowded:
        parts += [_band(curve, x, y) for curve in ordered if curve.seeds > 1]
    parts += [_line(curve, x, y) for curve in ordered]
    if not is_crowded:
        parts += _labels(panel, x, y, right)
    losses = ", ".join(f"{curve.label} ends at {curve.mean[-1]:.3g}" for curve in panel.curves[:MAX_LABELS])
    description = f"{panel.title} over optimizer steps: {losses}."
    return element(
        "svg",
        "".join(parts),
        viewBox=f"0 0 {WIDTH:.0f} {HEIGHT:.0f}",
        class_="chart",
        role="img",
        aria_label=description,
    )


def _band(curve: Curve, x: Scale, y: Scale) -> str:
    upper = [(x(step), y(value)) for step, value in zip(curve.steps, curve.high, strict=True)]
    lower = [(x(step), y(value)) for step, value in zip(curve.steps, curve.low, strict=True)]
    return element("path", d=path([*upper, *reversed(lower)], closed=True), class_="band", style=hue(curve.index))


def _line(curve: Curve, x: Scale, y: Scale) -> str:
    points = [(x(step), y(value)) for step, value in zip(curve.steps, curve.mean, strict=True)]
    return element("path", d=path(points), class_="line", style=hue(curve.index), stroke_dasharray=dash(curve.index))


def _labels(panel: Panel, x: Scale, y: Scale, right: float) -> list[str]:
    ends = [y(curve.mean[-1]) for curve in panel.curves]
    parts = []
    for curve, end, place in zip(panel.curves, ends, spread(ends, 15.0, TOP, HEIGHT - BOTTOM), strict=True):
        start = x(curve.steps[-1])
        leader = path([(start + 2, end), (right + 6, place), (right + 14, place)])
        parts.append(element("path", d=leader, class_="leader", style=hue(curve.index)))
        name = curve.label if len(curve.label) <= 19 else f"{curve.label[:18]}…"
        parts.append(text(right + 18, place + 4, name, class_="series"))
    return parts
