"""What the user chose to see."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from lossbench.errors import ConfigError, nearest
from lossbench.report.records import State
from lossbench.report.statistics import SEED

CAN_BE_INCLUDED = (State.RUNNING, State.INTERRUPTED, State.CRASHED, State.FAILED)


@dataclass(frozen=True)
class Choices:
    """All of them have a default.

    Attributes:
        baseline: the loss that others are compared with; else that of the sweep's plan, else cross_entropy.
        metrics: columns by name; the default columns that are present if None.
        where: conditions on the runs, such as `model=gpt2 seed<3` (see `selection`).
        since: ISO date or time; only runs created then or later.
        include: states of runs whose last logged values are shown in grey; they enter no mean, mark or test.
        group_by: settings whose values name the rows beside the loss.
        sort: a column by whose mean the rows are ordered, or `name`.
        paper: name of a paper whose figures are shown beside ours.
        seed: of resampled intervals and sign flips.
    """

    baseline: str | None = None
    metrics: tuple[str, ...] | None = None
    where: str = ""
    since: str | None = None
    include: tuple[State, ...] = ()
    group_by: tuple[str, ...] = ()
    sort: str | None = None
    paper: str | None = None
    seed: int = SEED


def states(names: Iterable[str]) -> tuple[State, ...]:
    """States by name, for `--include`. Raises ConfigError for one that cannot be included."""
    known = [str(state) for state in CAN_BE_INCLUDED]
    for name in names:
        if name not in known:
            raise ConfigError(f"--include: {name!r} is no state of a run that has not ended.{nearest(name, known)}")
    return tuple(State(name) for name in names)
