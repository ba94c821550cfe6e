"""Figures of the page. Each module here is one figure, found by its name.

A figure module has `ORDER` (an int: its place on the page) and `draw(report, index) -> Figure | None` for the table
`report.tables[index]`; None where there is nothing to draw.
"""

from __future__ import annotations

import importlib
import pkgutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, cast

if TYPE_CHECKING:
    from lossbench.report.build import Report

HUES = 7  # distinct colours; further series repeat them with another dash
DASHES = (None, "5 3", "1.5 3")


@dataclass(frozen=True)
class Figure:
    """What the page shows: `title`, one or more SVG drawings side by side, a caption, and the series of a legend."""

    title: str
    drawings: tuple[str, ...]
    caption: str
    legend: tuple[tuple[str, int], ...] = ()


class FigureModule(Protocol):
    """The shape of a figure module."""

    ORDER: int

    def draw(self, report: Report, index: int) -> Figure | None:
        """The figure for one table."""


def available() -> list[FigureModule]:
    """All figures in the order of the page."""
    modules = [importlib.import_module(f"{__name__}.{module.name}") for module in pkgutil.iter_modules(__path__)]
    return sorted((cast(FigureModule, module) for module in modules), key=lambda figure: figure.ORDER)


def hue(index: int) -> str:
    """The CSS of a series' colour: the first is the ink, the others are Okabe and Ito's."""
    return f"--c:var(--s{index if index < HUES else 1 + (index - 1) % (HUES - 1)})"


def dash(index: int) -> str | None:
    """The dash pattern that tells series of one colour apart."""
    return None if index < HUES else DASHES[(index - 1) // (HUES - 1) % len(DASHES)]
