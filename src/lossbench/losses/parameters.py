"""Validation of constructor parameters: each function returns the value or raises `BadParameter` with a sentence."""

from __future__ import annotations

import math
from collections.abc import Sequence

from .errors import BadParameter, nearest


def number(
    name: str,
    value: object,
    *,
    at_least: float = -math.inf,
    above: float = -math.inf,
    at_most: float = math.inf,
    below: float = math.inf,
) -> float:
    """A finite real number in the given range (infinite ends are open), as float."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadParameter(f"{name} must be a number, got {value!r} ({type(value).__name__}).")
    if not math.isfinite(value):
        raise BadParameter(f"{name} must be finite, got {value!r}.")
    if not (value >= at_least and value > above and value <= at_most and value < below):
        limits = [
            f"{sign} {limit:g}"
            for sign, limit in ((">=", at_least), (">", above), ("<=", at_most), ("<", below))
            if math.isfinite(limit)
        ]
        raise BadParameter(f"{name} must be {' and '.join(limits)}, got {value!r}.")
    return float(value)


def integer(name: str, value: object, *, at_least: int) -> int:
    """A whole number of at least `at_least`."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise BadParameter(f"{name} must be a whole number, got {value!r} ({type(value).__name__}).")
    if value < at_least:
        raise BadParameter(f"{name} must be >= {at_least}, got {value!r}.")
    return value


def choice(name: str, value: object, known: Sequence[str]) -> str:
    """One of the known words."""
    if not isinstance(value, str) or value not in known:
        raise BadParameter(f"{name} is {value!r}, which is not one of its values.{nearest(str(value), known)}")
    return value


def flag(name: str, value: object) -> bool:
    """True or False."""
    if not isinstance(value, bool):
        raise BadParameter(f"{name} must be true or false, got {value!r} ({type(value).__name__}).")
    return value
