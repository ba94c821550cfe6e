"""Numbers as run records spell them, and reading of JSON that may be damaged."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

_WORDS = {
    "nan": math.nan,
    "inf": math.inf,
    "infinity": math.inf,
    "+infinity": math.inf,
    "-inf": -math.inf,
    "-infinity": -math.inf,
}


def as_number(value: object) -> float | None:
    """A float for a JSON number or for one of the words NaN, Infinity, -Infinity; None for everything else."""
    if type(value) is float:
        return value
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        try:
            return float(value)
        except OverflowError:  # an integer of more than 308 digits
            return math.inf if value > 0 else -math.inf
    if isinstance(value, str):
        return _WORDS.get(value.strip().casefold())
    return None


def as_json(value: float | None) -> float | str | None:
    """The inverse of `as_number`, for strict JSON: finite numbers as they are, the others as words."""
    if value is None or math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def parse_json(text: str | bytes) -> Any:
    """`json.loads` that raises ValueError for every kind of damage (nesting and encoding included)."""
    try:
        if isinstance(text, bytes):
            text = text.decode("utf-8")
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def read_json_object(path: Path) -> tuple[dict[str, Any] | None, str | None]:
    """(the object, None), or (None, a sentence saying what is wrong); (None, None) if there is no such file."""
    try:
        data = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None, None
    except OSError as error:
        return None, f"{path.name} cannot be read: {error.strerror or error}."
    if not data.strip():
        return None, f"{path.name} is empty."
    try:
        value = parse_json(data)
    except ValueError as error:
        return None, f"{path.name} is not JSON: {error}."
    if not isinstance(value, dict):
        return None, f"{path.name} holds a {type(value).__name__} where an object is expected."
    return value, None


def one_line(text: object) -> str:
    """Text that is safe in every output: one line, valid Unicode, no control characters (a terminal obeys those)."""
    text = str(text)
    if text.isascii() and text.isprintable():
        return text
    valid = text.encode("utf-8", "replace").decode("utf-8")
    return "".join(c if c.isprintable() else " " if c.isspace() else "\ufffd" for c in valid)


def timestamp(text: object) -> float | None:
    """Seconds since 1970 of an ISO 8601 time (UTC where it names no zone); None if it is no such time."""
    if not isinstance(text, str):
        return None
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        return moment.timestamp()
    except (ValueError, OverflowError):
        return None


def flatten(tree: dict[str, Any]) -> dict[str, Any]:
    """Nested mappings as one, keys joined by dots; lists stay values. Iterative: any depth that JSON allows is fine."""
    flat: dict[str, Any] = {}
    stack: list[tuple[str, Any]] = [(str(key), value) for key, value in reversed(tree.items())]
    while stack:
        key, value = stack.pop()
        if isinstance(value, dict) and value:
            stack.extend((f"{key}.{name}", child) for name, child in reversed(value.items()))
        else:
            flat[key] = value
    return flat
