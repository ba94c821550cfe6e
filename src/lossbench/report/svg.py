"""The little SVG that the page needs, made by hand: themed by the page's CSS, byte-stable, no namespace address."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise


def element(tag: str, content: str = "", **attributes: object) -> str:
    """One element. `class_` becomes class, other underscores hyphens; floats get one place; values are escaped."""
    parts = [tag]
    for key, value in attributes.items():
        if value is None:
            continue
        name = key.rstrip("_").replace("_", "-") if key != "viewBox" else key
        parts.append(f'{name}="{escape(coordinate(value) if isinstance(value, float) else str(value))}"')
    return f"<{' '.join(parts)}>{content}</{tag}>" if content or tag in ("svg", "text") else f"<{' '.join(parts)}/>"


def text(x: float, y: float, words: str, **attributes: object) -> str:
    """A text element; `words` are escaped."""
    return element("text", escape(words), x=x, y=y, **attributes)


def coordinate(value: float) -> str:
    """A short decimal: at most one place."""
    rounded = f"{value:.1f}".removesuffix(".0")
    return "0" if rounded == "-0" else rounded


def path(points: Iterable[tuple[float, float]], closed: bool = False, coarse: bool = False) -> str:
    """The `d` of a polyline; in whole pixels, each counted from the one before, if `coarse`: for many lines a page."""
    if not coarse:
        steps = [f"{coordinate(x)} {coordinate(y)}" for x, y in points]
        return f"M{'L'.join(steps)}{'Z' if closed else ''}"
    whole = [(round(x), round(y)) for x, y in points]
    turns = [(x - before_x, y - before_y) for (before_x, before_y), (x, y) in pairwise(whole)]
    drawn = " ".join(f"{x}{'' if y < 0 else ' '}{y}" for x, y in turns).replace(" -", "-")
    return f"M{whole[0][0]} {whole[0][1]}{'l' if turns else ''}{drawn}{'Z' if closed else ''}"


@dataclass(frozen=True)
class Scale:
    """Maps values in [low, high] to pixels in [start, end], linearly or by the logarithm."""

    low: float
    high: float
    start: float
    end: float
    is_log: bool = False

    def __call__(self, value: float) -> float:
        low, high = self.low, self.high
        if self.is_log:
            value, low, high = math.log(value), math.log(low), math.log(high)
        share = 0.5 if high == low else (value - low) / (high - low)
        return self.start + share * (self.end - self.start)

    def ticks(self, count: int = 5) -> list[float]:
        """Round values inside the range, about `count` of them."""
        if not self.is_log:
            return linear_ticks(self.low, self.high, count)
        exponents = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        inside = [m * 10.0**e for e in exponents for m in (1, 2, 5) if self.low <= m * 10.0**e <= self.high]
        if len(inside) < 3:
            return linear_ticks(self.low, self.high, count)
        return inside if len(inside) <= 7 else [tick for tick in inside if f"{tick:e}".startswith("1")]


def linear_ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Multiples of 1, 2 or 5 times a power of ten inside [low, high]."""
    if not high > low:
        return [low]
    raw = (high - low) / max(1, count)
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(m * power for m in (1.0, 2.0, 5.0, 10.0) if m * power >= raw * 0.999)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [index * step for index in range(first, last + 1)]


def tick_label(value: float) -> str:
    """A short number: `0.25`, `1500`, `2e-05`."""
    return f"{value + 0.0:.6g}".replace("-", "−")


def spread(positions: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Positions moved apart to at least `gap`, as little as needed, within [low, high]; in the order of the input."""
    order = sorted(range(len(positions)), key=lambda i: positions[i])
    placed: list[float] = []
    for index in order:
        placed.append(max(positions[index], placed[-1] + gap if placed else low))
    overshoot = max(0.0, placed[-1] - high) if placed else 0.0
    for rank in range(len(placed) - 1, -1, -1):
        limit = high if rank == len(placed) - 1 else placed[rank + 1] - gap
        placed[rank] = min(placed[rank], limit) if overshoot else placed[rank]
    result = [0.0] * len(positions)
    for rank, index in enumerate(order):
        result[index] = placed[rank]
    return result
