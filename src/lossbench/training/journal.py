"""Where training writes what it measures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


class Journal(Protocol):
    """What training writes to: the run's record, on rank 0."""

    folder: Path

    @property
    def lines(self) -> int:
        """How many lines have been logged."""

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Log the values of an optimizer step."""

    def continue_from(self, lines: int | None) -> None:
        """Go on behind so many lines; None: none of them counts, training begins anew."""


@dataclass
class Bystander:
    """The journal of the other ranks, which write nothing."""

    folder: Path
    lines: int = 0

    def log(self, step: int, values: Mapping[str, float]) -> None: ...

    def continue_from(self, lines: int | None) -> None: ...
