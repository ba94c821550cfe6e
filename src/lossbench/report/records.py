"""What the report knows about one run, whatever source it came from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

UNKNOWN = "unknown"
Keys = tuple[str, ...] | None  # of a training log; None for all that hold numbers


class State(StrEnum):
    """How a run stands. Only values of runs that finished enter a mean."""

    FINISHED = "finished"
    RUNNING = "running"
    INTERRUPTED = "interrupted"  # stopped by a signal, can be resumed
    FAILED = "failed"  # an error was recorded
    CRASHED = "crashed"  # no exit record, and silent for more than ten minutes
    INCOMPLETE = "incomplete"  # finished, but without a metric that its peers have
    INVALID = "invalid"  # a metric of record is NaN, infinite or out of bounds, or the record is damaged
    CONFLICT = "conflict"  # finished, but two sources disagree about a metric
    EMPTY = "empty"  # a log that holds nothing but its header
    DUPLICATE = "duplicate"  # another run of the same group and seed is used instead
    MISSING = "missing"  # expected, nothing found

    @property
    def is_ended(self) -> bool:
        """True where the run came to its regular end, so that its valid values count."""
        return self in (State.FINISHED, State.INCOMPLETE, State.INVALID)


@dataclass(frozen=True)
class History:
    """The rows of a training log: parallel lists for each key, and what was wrong with the log.

    `series[key]` is a list of (step, value) in the order of the log; values are finite or not, as they were logged.
    `overlap` counts rows of earlier attempts that are left out because a later attempt logged their steps again.
    """

    series: Mapping[str, list[tuple[int, float]]] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    overlap: int = 0


@dataclass(frozen=True)
class Examples:
    """Rows of the evaluated examples (a dict a row, keys as in examples.parquet), and what was wrong with them."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    problems: tuple[str, ...] = ()


@dataclass(frozen=True)
class LaterEvaluation:
    """An evaluation that was made after the run, of its model on some dataset.

    Attributes:
        subject: what was evaluated, as it stands in the names of the metrics: `gsm8k`, `gsm8k+limit=200`.
        protocol: all that has to be equal for the numbers of two runs to be compared, as text.
        metrics: floats by name, as the evaluation itself calls them (`test/em`).
        created: ISO time.
        location: below the run folder.
    """

    subject: str
    protocol: str
    metrics: Mapping[str, float]
    created: str | None = None
    location: str = ""


def no_history(keys: Keys) -> History:
    """The history of a run that has none."""
    return History()


def no_examples() -> Examples:
    """The examples of a run that has none."""
    return Examples()


@dataclass(frozen=True)
class RunRecord:
    """One run. Text fields are `unknown` where the record does not say; `metrics` holds floats, NaN included.

    `group` is the identity without the seed: runs of one group differ in nothing but the seed. `config` is flat (dotted
    keys). `location` is where it was found, written relative to what the reader of the report was given. `read_history`
    and `read_examples` are lazy: nothing is read before they are called.

    `last_values` are the last logged numbers of a run that has not come to its regular end (never for a mean).
    `source` is the source that is believed, `also_in` names others that know the same run. `url` is the run's page in
    wandb, and `heartbeat` (ISO time) its newest sign of life. The numbers of `evaluations` enter `metrics` under names
    of their own (see `report.evaluations`).
    """

    id: str
    loss: str = UNKNOWN
    model: str = UNKNOWN
    dataset: str = UNKNOWN
    seed: int | None = None
    name: str = ""
    study: str = ""
    group: str = ""
    attempt: int = 1
    state: State = State.MISSING
    created: str | None = None
    finished: str | None = None
    duration: float | None = None
    last_step: int | None = None
    checkpoint_step: int | None = None
    checkpoint_criterion: str | None = None
    error: str | None = None
    config: Mapping[str, Any] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    source: str = ""
    path: Path | None = None
    location: str = ""
    planned: bool = False
    problems: tuple[str, ...] = ()
    last_values: Mapping[str, float] = field(default_factory=dict)
    also_in: tuple[str, ...] = ()
    url: str | None = None
    heartbeat: str | None = None
    tags: tuple[str, ...] = ()
    evaluations: tuple[LaterEvaluation, ...] = ()
    read_history: Callable[[Keys], History] = field(default=no_history, repr=False, compare=False)
    read_examples: Callable[[], Examples] = field(default=no_examples, repr=False, compare=False)

    @property
    def sort_key(self) -> tuple[Any, ...]:
        """A total order that does not depend on the file system."""
        seed = (self.seed is None, self.seed or 0)
        return (self.model, self.dataset, self.loss, *seed, self.group, self.id, self.location)
