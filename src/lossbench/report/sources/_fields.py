"""Fields of a record that another program may have written: what does not fit becomes a sentence in `problems`."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from lossbench.report.numbers import as_number, one_line

# What may differ between runs that are otherwise equal; left out where the record itself names no group.
NOT_IDENTITY = ("seed", "paths", "tracking", "study", "name", "hydra")


def text(source: Mapping[str, Any], key: str, problems: list[str]) -> str | None:
    """The text under `key`, as one safe line; None where there is none."""
    value = source.get(key)
    if value is None:
        return None
    if isinstance(value, str):
        return one_line(value)
    problems.append(f"`{key}` is {short(value)} where text is expected; it is ignored.")
    return None


def whole(source: Mapping[str, Any], key: str, problems: list[str]) -> int | None:
    """The whole number under `key`; None where there is none."""
    value = source.get(key)
    number = as_number(value)
    if number is not None and number.is_integer() and abs(number) < 2**63:
        return int(number)
    if value is not None:
        problems.append(f"`{key}` is {short(value)} where a whole number is expected; it is ignored.")
    return None


def short(value: object) -> str:
    """A value for a sentence: at most 60 characters."""
    shown = repr(value) if isinstance(value, str | int | float | bool) else f"a {type(value).__name__}"
    return one_line(shown if len(shown) <= 60 else f"{shown[:57]}...")


def group_of(loss: str, model: str, dataset: str, config: Mapping[str, Any]) -> str:
    """A group for a record that names none: a hash of its flat configuration without what may differ."""
    kept = {key: value for key, value in config.items() if key.split(".")[0] not in NOT_IDENTITY}
    return hashlib.sha256(json.dumps([loss, model, dataset, kept], sort_keys=True, default=str).encode()).hexdigest()[
        :16
    ]


def numbers_of(values: Mapping[str, Any], problems: list[str]) -> dict[str, float]:
    """The numbers among `values`; everything else is absent and named, and of an object the way out is named."""
    numbers: dict[str, float] = {}
    for key, value in values.items():
        name = one_line(key)
        number = as_number(value)
        if number is not None:
            numbers[name] = number
        elif isinstance(value, dict):
            inner = ", ".join(f"{name}/{one_line(k)}" for k in list(value)[:3])
            problems.append(f"Metric {name} is an object; log its parts as metrics of their own ({inner}).")
        elif value is not None:
            problems.append(f"Metric {name} is {short(value)}, not a number; it is treated as absent.")
    return numbers


def versions_of(identity: Mapping[str, Any]) -> dict[str, str]:
    """Versions of packages, and the commit, as text."""
    versions = identity.get("versions")
    known = {one_line(k): one_line(v) for k, v in versions.items()} if isinstance(versions, dict) else {}
    git = identity.get("git")
    if isinstance(git, dict) and isinstance(git.get("commit"), str):
        known["git commit"] = one_line(git["commit"])[:12] + (" with local changes" if git.get("dirty") else "")
    return known
