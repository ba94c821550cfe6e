"""Figures of the report. Each module here without a leading underscore is one figure, found by its name.

A figure module has `ORDER` (an int: its place on the page), `ON_PAGE` (False where the page shows the same in another
way) and `draw(report, index) -> Figure | None` for the table `report.tables[index]`; None where there is nothing to
draw. The page, the SVG files and the PDF files are made of the same drawings.
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

    __name__: str
    ORDER: int
    ON_PAGE: bool

    def draw(self, report: Report, index: int) -> Figure | None:
        """The figure for one table."""


def available() -> list[FigureModule]:
    """All figures in the order of the page."""
    names = [module.name for module in pkgutil.iter_modules(__path__) if not module.name.startswith("_")]
    modules = [importlib.import_module(f"{__name__}.{name}") for name in names]
    return sorted((cast(FigureModule, module) for module in modules), key=lambda figure: figure.ORDER)


def draw_all(report: Report) -> tuple[dict[str, Figure], ...]:
    """For each table its figures by the names of their modules, in the order of the page."""
    modules = [(module.__name__.rpartition(".")[2], module) for module in available()]
    return tuple(
        {name: figure for name, module in modules if (figure := module.draw(report, index)) is not None}
        for index in range(len(report.tables))
    )


def drawings(report: Report) -> dict[str, str]:
    """Every drawing of the report by a name that can be a file's: `curves-tiny-arithmetic-1`, `ranks-test-em`."""
    from lossbench.report.figures._ranks import draw_ranking
    from lossbench.report.formatting import slugs

    found = {}
    for figures, place in zip(report.figures, slugs([table.title for table in report.tables]), strict=True):
        for name, figure in figures.items():
            numbered = len(figure.drawings) > 1
            for number, svg in enumerate(figure.drawings, start=1):
                found[f"{name}-{place}{f'-{number}' if numbered else ''}"] = svg
    for ranking, place in zip(report.rankings, slugs([r.metric.name for r in report.rankings]), strict=True):
        found[f"ranks-{place}"] = draw_ranking(ranking, series(report))
    return found


def series(report: Report) -> dict[str, int]:
    """The series number of each loss: its row in the first table that has it."""
    places: dict[str, int] = {}
    for table in report.tables:
        for index, row in enumerate(table.rows):
            places.setdefault(row.label, index)
    return places


def hue(index: int) -> str:
    """The CSS of a series' colour: the first is the ink, the others are Okabe and Ito's."""
    return f"--c:var(--s{index if index < HUES else 1 + (index - 1) % (HUES - 1)})"


def dash(index: int) -> str | None:
    """The dash pattern that tells series of one colour apart."""
    return None if index < HUES else DASHES[(index - 1) // (HUES - 1) % len(DASHES)]
