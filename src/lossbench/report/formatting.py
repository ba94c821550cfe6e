"""Numbers as text, in the scale and digits of their metric; the minus is a plain hyphen (writers may change it)."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from datetime import UTC

from lossbench.report.metrics import Metric
from lossbench.report.numbers import timestamp


def number(value: float | None, metric: Metric, sign: bool = False) -> str:
    """A value in printed units, e.g. 0.4731 of exact match as `47.3`; scientific where the digits would hide it."""
    if value is None:
        return ""
    return fixed(value * metric.scale, metric.digits, sign)


def fixed(value: float, digits: int | None, sign: bool = False) -> str:
    """A number with fixed decimals, or four significant digits where `digits` is None."""
    plus = "+" if sign else ""
    if not math.isfinite(value):
        return f"{value:{plus}}"
    if digits is None:
        return f"{value:{plus}.4g}"
    if abs(value) >= 1e6 or 0 < abs(value) < 0.5 * 10.0**-digits:
        return f"{value:{plus}.2e}"
    if abs(value) >= 1000:
        digits = min(digits, 1)
    return f"{value:{plus}.{digits}f}"


def p_value(p: float | None) -> str:
    """`0.032`, `<0.001`, or empty."""
    if p is None:
        return ""
    return "<0.001" if p < 0.001 else f"{p:.3f}"


def p_equals(p: float) -> str:
    """`= 0.032`, or `< 0.001`, to stand after a p."""
    text = p_value(p)
    return text.replace("<", "< ") if text.startswith("<") else f"= {text}"


def heading(metric: Metric) -> str:
    """`Exact match (%)`."""
    return f"{metric.label} ({metric.unit})" if metric.unit else metric.label


def arrow(metric: Metric) -> str:
    """An arrow towards better values; empty where there is no better."""
    return {"higher": "↑", "lower": "↓", None: ""}[metric.direction]


def moment(text: str | None) -> str:
    """`2026-11-30 16:00 UTC` of an ISO time; empty where it is none."""
    seconds = timestamp(text)
    if seconds is None:
        return ""
    from datetime import datetime

    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")


def counted(count: int, noun: str) -> str:
    """`1 seed`, `3 seeds`, `2 losses`."""
    if count == 1:
        return f"{count} {noun}"
    return f"{count} {noun}es" if noun.endswith("s") else f"{count} {noun}s"


def clipped(text: str, limit: int) -> str:
    """At most `limit` characters, the cut shown by an ellipsis."""
    return text if len(text) <= limit else f"{text[: limit - 1].rstrip()}…"


def slugs(texts: Sequence[str]) -> list[str]:
    """Names for files, of letters, digits, dots, hyphens and underscores; equal ones are numbered."""
    seen: dict[str, int] = {}
    named = []
    for text in texts:
        slug = re.sub(r"[^A-Za-z0-9_.]+", "-", text).strip("-.")[:60] or "unnamed"
        seen[slug.lower()] = seen.get(slug.lower(), 0) + 1
        count = seen[slug.lower()]
        named.append(slug if count == 1 else f"{slug}-{count}")
    return named
