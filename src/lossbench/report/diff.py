"""`lossbench diff A B`: what two runs, or two sets of runs, have differently: settings, versions, numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lossbench.report.collect import collect
from lossbench.report.records import RunRecord, State
from lossbench.report.table import Cell, build_tables
from lossbench.report.variants import different_settings, split_variants

ABSENT = "absent"
FACTS = ("state", "study", "loss", "model", "dataset", "seed", "attempt", "created", "last_step", "checkpoint_step")


@dataclass(frozen=True)
class Change:
    """A number on both sides, in logged units; None where a side has none. `note` says of what it is the mean."""

    name: str
    a: float | None
    b: float | None
    note: str = ""

    @property
    def delta(self) -> float | None:
        """b - a."""
        return None if self.a is None or self.b is None else self.b - self.a


@dataclass(frozen=True)
class Diff:
    """`facts`, `settings` and `versions` are (key, value in a, value in b) where they differ."""

    a: str
    b: str
    facts: tuple[tuple[str, str, str], ...]
    settings: tuple[tuple[str, str, str], ...]
    versions: tuple[tuple[str, str, str], ...]
    numbers: tuple[Change, ...]


def diff(a: str | Path, b: str | Path, now: float | None = None) -> Diff:
    """Compare what lies at two places.

    Two single runs are compared key by key and metric by metric. Otherwise settings are compared as sets of values, and
    numbers are the means of rows with equal model, dataset and label.

    Raises:
        NoRunsError: one of the places has no run.
    """
    left, right = (
        [run for run in collect([target], now).records if run.state is not State.MISSING] or _none(target)
        for target in (a, b)
    )
    if len(left) == len(right) == 1:
        return _of_runs(left[0], right[0])
    return _of_sets(str(a), str(b), left, right)


def _none(target: str | Path) -> list[RunRecord]:
    from lossbench.report.errors import NoRunsError

    raise NoRunsError(f"{target}: its plan was found, but none of its runs.")


def _of_runs(a: RunRecord, b: RunRecord) -> Diff:
    facts = [(name, str(getattr(a, name)), str(getattr(b, name))) for name in FACTS]
    names = sorted(set(a.metrics) | set(b.metrics))
    return Diff(
        a.location,
        b.location,
        tuple(fact for fact in facts if fact[1] != fact[2]),
        different_settings(a.config, b.config),
        different_settings(a.versions, b.versions),
        tuple(Change(name, a.metrics.get(name), b.metrics.get(name)) for name in names),
    )


def _of_sets(a: str, b: str, left: Sequence[RunRecord], right: Sequence[RunRecord]) -> Diff:
    from lossbench.report.metrics import describe

    facts = [
        ("runs", str(len(left)), str(len(right))),
        *((name, _values(left, name), _values(right, name)) for name in ("study", "loss", "model", "dataset", "seed")),
    ]
    metrics = [describe(name) for name in sorted({name for run in (*left, *right) for name in run.metrics})]
    cells = [
        {
            (table.title, row.label, cell.metric.name): cell
            for table in build_tables(split_variants(side), metrics)
            for row in table.rows
            for cell in row.cells
        }
        for side in (left, right)
    ]
    numbers = tuple(_change(key, cells[0].get(key), cells[1].get(key)) for key in sorted(set(cells[0]) | set(cells[1])))
    return Diff(
        a,
        b,
        tuple(fact for fact in facts if fact[1] != fact[2]),
        _different_sets([run.config for run in left], [run.config for run in right]),
        _different_sets([run.versions for run in left], [run.versions for run in right]),
        numbers,
    )


def _change(key: tuple[str, str, str], a: Cell | None, b: Cell | None) -> Change:
    title, label, metric = key
    seeds = " and ".join(str(cell.n) if cell else "0" for cell in (a, b))
    return Change(
        f"{label}, {title}: {metric}", a.mean if a else None, b.mean if b else None, f"means of {seeds} seeds"
    )


def _values(runs: Sequence[RunRecord], name: str) -> str:
    return ", ".join(sorted({str(getattr(run, name)) for run in runs}))


def _different_sets(
    left: Sequence[Mapping[str, Any]], right: Sequence[Mapping[str, Any]]
) -> tuple[tuple[str, str, str], ...]:
    def values(side: Sequence[Mapping[str, Any]], key: str) -> str:
        return " | ".join(sorted({str(known.get(key, ABSENT)) for known in side}))

    keys = sorted({key for known in (*left, *right) for key in known})
    return tuple(
        (key, values(left, key), values(right, key)) for key in keys if values(left, key) != values(right, key)
    )
