"""Axes, points and labels that several figures share. No figure itself: it has no `draw`."""

from __future__ import annotations

from collections.abc import Sequence

from lossbench.report.figures import dash, hue
from lossbench.report.svg import Scale, element, path, spread, text, tick_label

WIDTH, HEIGHT = 560.0, 320.0
LEFT, RIGHT, TOP, BOTTOM = 52.0, 152.0, 34.0, 40.0
MAX_LABELS = 10
LABEL_CHARACTERS = 19
RISES = (-6, 16, -20, 30, -34, 44, -48, 58, -62, 72, 86, 100)  # of a name's baseline below its point, nearest first
FAR = 24.0  # from which on a name needs a line to its point


def right_edge(is_crowded: bool) -> float:
    """Where the plotting area ends: labels need room."""
    return WIDTH - (16.0 if is_crowded else RIGHT)


def frame(x: Scale, y: Scale, title: str, below: str, right: float) -> list[str]:
    """Title, grid lines with their ticks, the horizontal axis and its name."""
    bottom = HEIGHT - BOTTOM
    parts = [text(0.0, 14.0, title, class_="panel-title")]
    for tick in y.ticks():
        parts.append(element("path", d=path([(LEFT, y(tick)), (right, y(tick))]), class_="grid"))
        parts.append(text(LEFT - 8, y(tick) + 4, tick_label(tick), class_="tick", text_anchor="end"))
    for tick in x.ticks():
        parts.append(text(x(tick), bottom + 18, tick_label(tick), class_="tick", text_anchor="middle"))
    parts.append(element("path", d=path([(LEFT, bottom), (right, bottom)]), class_="axis"))
    parts.append(text((LEFT + right) / 2, HEIGHT - 4, below, class_="tick", text_anchor="middle"))
    return parts


def chart(parts: Sequence[str], description: str, height: float = HEIGHT) -> str:
    """The drawing as a whole, with a description for those who cannot see it."""
    return element(
        "svg",
        "".join(parts),
        viewBox=f"0 0 {WIDTH:.0f} {height:.0f}",
        class_="chart",
        role="img",
        aria_label=description,
    )


def line(points: Sequence[tuple[float, float]], index: int, coarse: bool = False) -> str:
    """The line of one series."""
    return element("path", d=path(points, coarse=coarse), class_="line", style=hue(index), stroke_dasharray=dash(index))


def dot(x: float, y: float, index: int, radius: float = 4.0) -> str:
    """A point of one series."""
    return element("circle", cx=x, cy=y, r=radius, class_="dot", style=hue(index))


def labels(ends: Sequence[tuple[str, int, float, float]], right: float) -> list[str]:
    """Names right of the plotting area, each with a thin line to its point; `ends` are (name, index, x, y)."""
    places = spread([y for *_, y in ends], 15.0, TOP, HEIGHT - BOTTOM)
    parts = []
    for (name, index, x, y), place in zip(ends, places, strict=True):
        leader = path([(x + 2, y), (right + 6, place), (right + 14, place)])
        parts.append(element("path", d=leader, class_="leader", style=hue(index)))
        shown = name if len(name) <= LABEL_CHARACTERS else f"{name[: LABEL_CHARACTERS - 1]}…"
        parts.append(text(right + 18, place + 4, shown, class_="series"))
    return parts


def names_beside(points: Sequence[tuple[str, int, float, float]], right: float) -> list[str]:
    """Names beside their points, where they cover neither points nor each other; `points` are (name, index, x, y).

    A name goes to the first free place around its point, nearest first, with a thin line to the point where it is far;
    to the nearest where none is free.
    """
    taken = [(x - 6, y - 6, x + 6, y + 6) for *_, x, y in points]
    parts = []
    for name, index, x, y in points:
        shown = name if len(name) <= LABEL_CHARACTERS else f"{name[: LABEL_CHARACTERS - 1]}…"
        width = 6.8 * len(shown)
        places = [(x + side * 9, y + rise) for rise in RISES for side in (1, -1)]
        boxes = [
            (at, rise, "start", (at, rise - 11, at + width, rise + 3))
            if at > x
            else (at, rise, "end", (at - width, rise - 11, at, rise + 3))
            for at, rise in places
        ]
        bottom = HEIGHT - BOTTOM
        inside = [
            b for b in boxes if b[3][0] >= LEFT and b[3][2] <= right and b[3][1] >= TOP - 14 and b[3][3] <= bottom
        ] or boxes
        chosen = next((b for b in inside if not any(_overlap(b[3], other) for other in taken)), inside[0])
        taken.append(chosen[3])
        if abs(chosen[1] - 4 - y) > FAR:
            parts.append(
                element("path", d=path([(x, y), (chosen[0], chosen[1] - 4)]), class_="leader", style=hue(index))
            )
        parts.append(text(chosen[0], chosen[1], shown, class_="series", text_anchor=chosen[2]))
    return parts


def _overlap(a: tuple[float, ...], b: tuple[float, ...]) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def padded(low: float, high: float, share: float = 0.06) -> tuple[float, float]:
    """A range with a margin on either side; a range of no width gets one."""
    margin = (high - low) * share or abs(high) * share or 1.0
    return low - margin, high + margin
