"""What papers published, beside what was measured here: `lossbench report --paper emo`.

One JSON file a paper, with the source of every figure. A figure is in it only if a text could be read that gives it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lossbench.errors import ConfigError, nearest
from lossbench.report import statistics
from lossbench.report.findings import estimate_text, interval_text
from lossbench.report.formatting import counted, number
from lossbench.report.table import Row, Table

FOLDER = Path(__file__).parent
NOT_RUN = "not run"


@dataclass(frozen=True)
class PaperRow:
    """One published figure beside ours, as text; `ours_*` are empty where nothing comparable was run."""

    task: str
    published_baseline: str
    published_loss: str
    published_change: str
    ours_setting: str
    ours_baseline: str
    ours_loss: str
    ours_change: str
    source: str


@dataclass(frozen=True)
class PaperTable:
    """A paper's figures beside ours."""

    title: str
    authors: str
    address: str
    note: str
    rows: tuple[PaperRow, ...]


def available() -> list[str]:
    """Names for `--paper`."""
    return sorted(file.stem for file in FOLDER.glob("*.json"))


def compare(name: str, tables: Sequence[Table]) -> PaperTable:
    """The figures of a paper beside the tables' means.

    Raises:
        ConfigError: there is no such paper.
    """
    known = available()
    if name not in known:
        raise ConfigError(f"--paper: there are no figures of {name!r}.{nearest(name, known)}")
    paper = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    rows = [row for figure in paper["figures"] for row in _figure(figure, paper, tables)]
    rows += [_improvement(figure, paper, tables) for figure in paper["improvements"]]
    return PaperTable(paper["title"], paper["authors"], paper["address"], paper["note"], tuple(rows))


def _figure(figure: dict[str, Any], paper: dict[str, Any], tables: Sequence[Table]) -> list[PaperRow]:
    published = (
        figure["task"],
        f"{figure['baseline']:.1f}",
        f"{figure['loss']:.1f}",
        f"{figure['loss'] - figure['baseline']:+.1f}",
    )
    found = []
    for table in tables:
        place = next((i for i, metric in enumerate(table.metrics) if metric.name == figure["metric"]), None)
        if table.dataset not in figure["datasets"] or place is None:
            continue
        base = next((row for row in table.rows if row.variant.loss in paper["baselines"]), None)
        for row in table.rows:
            if row.variant.loss in paper["losses"]:
                found.append(PaperRow(*published, *_ours(table, base, row, place), figure["source"]))
    return found or [PaperRow(*published, NOT_RUN, "", "", "", figure["source"])]


def _ours(table: Table, base: Row | None, row: Row, place: int) -> tuple[str, str, str, str]:
    metric, cell = table.metrics[place], row.cells[place]
    change = ""
    if cell.comparison and base is not None and cell.comparison.baseline == base.label:
        found = cell.comparison.difference
        change = f"{estimate_text(found, metric)} {interval_text(found, metric)}".strip()
    ours_base = number(base.cells[place].mean, metric) if base is not None else ""
    setting = f"{row.label}, {table.title}, {counted(cell.n, 'seed')}"
    return setting, ours_base, number(cell.mean, metric), change


def _improvement(figure: dict[str, Any], paper: dict[str, Any], tables: Sequence[Table]) -> PaperRow:
    gains = []
    for table in tables:
        place = next((i for i, metric in enumerate(table.metrics) if metric.name == figure["metric"]), None)
        if place is None:
            continue
        base = next((row.cells[place].mean for row in table.rows if row.variant.loss in paper["baselines"]), None)
        for row in table.rows:
            mean = row.cells[place].mean
            if row.variant.loss in paper["losses"] and mean is not None and base:
                gains.append(mean / base - 1)
    ours = f"{statistics.mean(gains):+.0%}" if gains else ""
    setting = f"{counted(len(gains), 'mean')} of {counted(len(tables), 'table')}" if gains else NOT_RUN
    return PaperRow(figure["what"], "", "", f"{figure['value']:+.0%}", setting, "", "", ours, figure["source"])
