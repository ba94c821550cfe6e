"""Where runs come from. Each module here (without a leading underscore) is one source of the same `RunRecord`.

A source module has `PRECEDENCE` (an int: of two sources that know the same run id, the lower one is believed),
`accepts(target) -> bool` and `read(target, now) -> Found`. `read` never raises on damaged input: it lists problems.
"""

from __future__ import annotations

import importlib
import pkgutil
from dataclasses import dataclass, field
from typing import Protocol, cast

from lossbench.report.records import RunRecord


@dataclass
class Found:
    """What one source found below one target.

    `expected` are the runs of a plan (sweep.json), in state `missing` and with whatever identity the plan gives;
    `files_seen` and `looked_in` make the message when nothing was found.
    """

    records: list[RunRecord] = field(default_factory=list)
    expected: list[RunRecord] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    looked_in: str = ""
    files_seen: int = 0
    plans_seen: int = 0


class Source(Protocol):
    """The shape of a source module."""

    PRECEDENCE: int

    def accepts(self, target: str) -> bool:
        """True if this source can read the target that the user named."""

    def read(self, target: str, now: float) -> Found:
        """All runs below the target; `now` (seconds since 1970) tells running runs from crashed ones."""


def available() -> list[Source]:
    """All sources, the most trusted one first."""
    names = [module.name for module in pkgutil.iter_modules(__path__) if not module.name.startswith("_")]
    modules = [cast(Source, importlib.import_module(f"{__name__}.{name}")) for name in names]
    return sorted(modules, key=lambda source: source.PRECEDENCE)
