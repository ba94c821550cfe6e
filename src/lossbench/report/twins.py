"""Rows of one table that are one method: their losses have the same gradient up to a positive factor.

The groups come from `lossbench.losses.equivalences`, where they are proved numerically; this module reads a copy in
`same_gradient.json`, because the report never imports torch. `tests/report/test_twins.py` holds the copy equal and
says how to write it again.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from lossbench.report.settings import terms_of
from lossbench.report.table import Table

FILE = Path(__file__).with_name("same_gradient.json")


@cache
def _data() -> tuple[dict[str, dict[str, Any]], dict[str, list[tuple[str, dict[str, Any]]]]]:
    data = json.loads(FILE.read_text(encoding="utf-8"))
    groups = {gradient: [(name, params) for name, params in members] for gradient, members in data["groups"].items()}
    return data["defaults"], groups


def gradient_of(settings: Mapping[str, Any]) -> tuple[str, str] | None:
    """(gradient, scope) of a configuration of one registered loss; None where no group is known for it.

    Mixtures, custom losses and scheduled weights are in no group.
    """
    terms = terms_of(settings)
    if len(terms) != 1:
        return None
    ((name, given),) = terms.items()
    defaults, groups = _data()
    given = dict(given)
    scope = str(given.pop("scope", "answer"))
    weight = given.pop("weight", 1.0)
    if (
        name not in defaults
        or not isinstance(weight, int | float)
        or not weight > 0
        or set(given) - set(defaults[name])
    ):
        return None
    params = {**defaults[name], **given}
    for gradient, members in groups.items():
        if any(member == name and _same(params, {**defaults[name], **asked}) for member, asked in members):
            return gradient, scope
    return None


def _same(a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
    return a.keys() == b.keys() and all(_equal(a[key], b[key]) for key in a)


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, int | float) and isinstance(b, int | float) and not isinstance(a, bool) | isinstance(b, bool):
        return abs(a - b) <= 1e-12 * max(abs(a), abs(b))
    return bool(a == b)


def twins(table: Table) -> list[tuple[str, ...]]:
    """Labels of rows with one gradient, scope and further settings, in the order of the table."""
    groups: dict[tuple[Any, ...], list[str]] = defaultdict(list)
    for row in table.rows:
        settings = row.variant.settings
        found = gradient_of(settings)
        if found is not None:
            others = tuple(sorted((k, str(v)) for k, v in settings.items() if k.split(".")[0] != "loss"))
            groups[(*found, others)].append(row.label)
    return [tuple(labels) for labels in groups.values() if len(labels) > 1]


def sentence(labels: tuple[str, ...]) -> str:
    """What a reader should make of it."""
    names = f"{', '.join(labels[:-1])} and {labels[-1]}"
    return f"{names} have the same gradient up to a factor: they are one method, and count as one finding."
