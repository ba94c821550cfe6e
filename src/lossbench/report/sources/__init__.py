"""Where runs come from. Each module here (without a leading underscore) is one source of the same `RunRecord`.

A source module has `PRECEDENCE` (an int: of two sources that know the same run id, the lower one is believed),
`accepts(target) -> bool` and `read(target, now, options) -> Found`. `read` never raises on damaged input: it lists
problems. A service that refuses (a wrong key, no such project) is a `SourceError`; one that is out of order for a while
is said in `Found.incomplete`.
"""

from __future__ import annotations

import importlib
import pkgutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, cast

from lossbench.errors import LossbenchError
from lossbench.report.records import RunRecord


class SourceError(LossbenchError):
    """A service refuses to say what runs it has; the sentence names host and project, never the key."""

    exit_code = 4


@dataclass(frozen=True)
class Options:
    """How sources read. Only those that ask a service over the network use them.

    Attributes:
        api_timeout: seconds for all requests to a service together, waiting between tries included.
        api_cache: a folder that keeps a service's answers between reports; None: nothing is kept.
        api_histories: ask the service for the rows of training logs too, which takes a few requests a run.
    """

    api_timeout: float = 300.0
    api_cache: Path | None = None
    api_histories: bool = False


DEFAULT = Options()


@dataclass
class Found:
    """What one source found below one target.

    `expected` are the runs of a plan (sweep.json), in state `missing` and with whatever identity the plan gives;
    `baselines` are the losses that they compare with, by the plan's location;
    `files_seen` and `looked_in` make the message when nothing was found. `incomplete` says why a service did not give
    everything, so that nobody takes the rest for the whole.
    """

    records: list[RunRecord] = field(default_factory=list)
    expected: list[RunRecord] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    looked_in: str = ""
    files_seen: int = 0
    plans_seen: int = 0
    baselines: dict[str, str] = field(default_factory=dict)
    incomplete: str | None = None


class Source(Protocol):
    """The shape of a source module."""

    PRECEDENCE: int

    def accepts(self, target: str) -> bool:
        """True if this source can read the target that the user named."""

    def read(self, target: str, now: float, options: Options = DEFAULT) -> Found:
        """All runs below the target; `now` (seconds since 1970) tells running runs from crashed ones."""


def available() -> list[Source]:
    """All sources, the most trusted one first."""
    names = [module.name for module in pkgutil.iter_modules(__path__) if not module.name.startswith("_")]
    modules = [cast(Source, importlib.import_module(f"{__name__}.{name}")) for name in names]
    return sorted(modules, key=lambda source: source.PRECEDENCE)
