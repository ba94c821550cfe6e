"""Hyper-parameters of the rows of a table: what differs beside the loss, and each loss's own parameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lossbench.report.formatting import clipped
from lossbench.report.table import Table

MAX_VALUE = 80
MAX_CONFIG = 1_000_000  # characters
ABSENT = "—"


@dataclass(frozen=True)
class SettingsTable:
    """`keys` are settings outside of the loss that are not the same in all rows; `rows` hold (label, parameters of
    the loss, values in the order of keys)."""

    keys: tuple[str, ...]
    rows: tuple[tuple[str, str, tuple[str, ...]], ...]


def settings_table(table: Table) -> SettingsTable | None:
    """None where no run recorded its configuration."""
    settings = [row.variant.settings for row in table.rows]
    if not any(settings):
        return None
    keys = sorted({key for known in settings for key in known if key.split(".")[0] != "loss"})
    known_rows = [known for known in settings if known]
    keys = [key for key in keys if len({str(known.get(key, ABSENT)) for known in known_rows}) > 1]
    rows = tuple(
        (row.label, loss_parameters(known), tuple(clipped(str(known.get(key, ABSENT)), MAX_VALUE) for key in keys))
        for row, known in zip(table.rows, settings, strict=True)
    )
    return SettingsTable(tuple(keys), rows)


def terms_of(settings: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Term name -> its parameters (weight and scope among them), from flat `loss.terms.NAME.KEY` settings."""
    terms: dict[str, dict[str, Any]] = {}
    for key, value in settings.items():
        if key.startswith("loss.terms.") and key.count(".") >= 3:
            _, _, name, parameter = key.split(".", 3)
            terms.setdefault(name, {})[parameter] = value
    return terms


def loss_parameters(settings: Mapping[str, Any]) -> str:
    """`0.6 cross_entropy [sequence] + 0.4 focal(gamma=2.0)`; empty where the configuration has no terms."""
    parts = []
    for name, given in terms_of(settings).items():
        weight = given.get("weight", 1.0)
        scope = given.get("scope", "answer")
        inner = ", ".join(f"{key}={value}" for key, value in given.items() if key not in ("weight", "scope"))
        text = f"{name}({inner})" if inner else name
        text = text if weight in (1, 1.0) else f"{weight} {text}"
        parts.append(text if scope == "answer" else f"{text} [{scope}]")
    return clipped(" + ".join(parts), 3 * MAX_VALUE)


def oversized(settings: Mapping[str, Any]) -> str:
    """A sentence on a configuration of more than a megabyte; empty for every other one."""
    size = len(repr(dict(settings)))
    if size <= MAX_CONFIG:
        return ""
    return f"Its configuration has {size / 1e6:.1f} MB; the report shows {MAX_VALUE} characters of a value at most."
