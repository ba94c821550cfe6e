"""`--where` and `--since`: which of the collected runs a report is about.

A condition is KEY OP VALUE without spaces inside (quote a value that has some): `model=gpt2`, `seed<3`, `loss!=focal`,
`optimizer.lr>=1e-4`, `test/em>0.3`, `loss~foc` (contains), `loss=focal,emo` (one of), `optimizer.betas=missing` (lacks
it). All conditions must hold.
"""

from __future__ import annotations

import operator
import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lossbench.errors import ConfigError, nearest
from lossbench.report.collect import Collection
from lossbench.report.formatting import counted
from lossbench.report.numbers import timestamp
from lossbench.report.records import RunRecord, State

FIELDS = (
    "id", "name", "study", "group", "loss", "model", "dataset", "seed", "state", "attempt", "created", "finished",
    "source", "duration", "last_step", "checkpoint_step",
)  # fmt: skip
TIMES = frozenset({"created", "finished"})
_ORDER: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
_CONDITION = re.compile(r"([^\s=<>!~]+)(!=|<=|>=|=|<|>|~)(.*)", re.S)
_ABSENT = object()
NOTHING = "missing"  # KEY=missing: runs that lack the key


@dataclass(frozen=True)
class Condition:
    """One condition on one key of a run."""

    key: str
    op: str
    value: str

    def __str__(self) -> str:
        return f"{self.key}{self.op}{self.value}"

    def holds(self, run: RunRecord) -> bool | None:
        """True or False; None where the run does not say (only a planned run that was not found may lack its keys)."""
        found = value_of(run, self.key)
        if found is _ABSENT or found is None:
            if run.state is State.MISSING:
                return None
            return (self.op == "=") == (self.value == NOTHING) if self.op in ("=", "!=") else False
        if self.op == "~":
            return self.value.casefold() in str(found).casefold()
        if self.op in ("=", "!="):
            return any(_equal(found, value) for value in self.value.split(",")) == (self.op == "=")
        left, right = _comparable(self.key, found), _comparable(self.key, self.value)
        return type(left) is type(right) and _ORDER[self.op](left, right)


def value_of(run: RunRecord, key: str) -> Any:
    """A field, metric or setting of a run by its name; a marker where it has none."""
    if key in FIELDS:
        return getattr(run, key)
    if key in run.metrics:
        return run.metrics[key]
    return run.config.get(key, _ABSENT)


def _comparable(key: str, value: Any) -> float | str:
    if key in TIMES:
        seconds = timestamp(str(value))
        if seconds is not None:
            return seconds
    try:
        return float(value)
    except (TypeError, ValueError):
        return str(value)


def _equal(found: Any, value: str) -> bool:
    if str(found) == value or (isinstance(found, bool) and str(found).casefold() == value.casefold()):
        return True
    try:
        return not isinstance(found, bool) and float(found) == float(value)
    except (TypeError, ValueError):
        return False


def parse_where(text: str) -> tuple[Condition, ...]:
    """`'model=gpt2 seed<3'` -> conditions. Raises ConfigError for what is none."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise ConfigError(f"--where {text!r} cannot be read: {error}. Quote values that hold spaces.") from None
    conditions = []
    for word in words:
        match = _CONDITION.fullmatch(word)
        if match is None or not match.group(3):
            raise ConfigError(
                f"--where: {word!r} is no condition. Write KEY=VALUE, or !=, <, <=, >, >=, ~ (contains) in place of =, "
                "without spaces around it, such as --where 'model=gpt2 seed<3'."
            )
        conditions.append(Condition(*match.groups()))
    return tuple(conditions)


def since(text: str) -> Condition:
    """`2026-11-30` or a longer ISO time -> the condition that a run was created then or later."""
    if timestamp(text) is None:
        raise ConfigError(f"--since {text!r} is no date. Write an ISO date or time, such as 2026-11-30.")
    return Condition("created", ">=", text)


def select(collection: Collection, conditions: Sequence[Condition]) -> Collection:
    """The collection without the runs for which a condition fails; what was left out is said in its problems.

    Raises:
        ConfigError: a key that no run has, or conditions under which no run is left.
    """
    if not conditions:
        return collection
    known = set(FIELDS)
    for record in collection.records:
        known.update(record.config, record.metrics)
    for condition in conditions:
        if condition.key not in known:
            raise ConfigError(f"--where: no run has the key {condition.key!r}.{nearest(condition.key, known)}")
    kept, undecided = [], 0
    for record in collection.records:
        answers = [condition.holds(record) for condition in conditions]
        if False in answers:
            continue
        if None in answers:
            undecided += 1
        else:
            kept.append(record)
    spelled = " ".join(map(str, conditions))
    if not kept:
        raise ConfigError(f"None of the {counted(len(collection.records), 'run')} fulfils {spelled}.")
    out = len(collection.records) - len(kept) - undecided
    notes = [f"Only runs with {spelled} are shown; {counted(out, 'other run')} {'is' if out == 1 else 'are'} left out."]
    if undecided:
        notes.append(
            f"{counted(undecided, 'missing run')} left out as well: the plan does not say whether {spelled} holds."
        )
    return replace(collection, records=tuple(kept), problems=(*collection.problems, *notes))
