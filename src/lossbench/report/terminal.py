"""The table that the command line prints."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from lossbench.report import notes, twins
from lossbench.report.collect import state_counts
from lossbench.report.findings import findings
from lossbench.report.formatting import arrow, counted, number
from lossbench.report.table import Cell, Row, Table

MAX_LABEL = 24
SEEDS_COLUMN, METRIC_COLUMN = 10, 14  # characters that such a column should have

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.text import Text

    from lossbench.report.build import Report


def render(report: Report, width: int = 100) -> str:
    """The report as plain text of at most `width` columns (wider only where a single word is)."""
    import io

    from rich.console import Console

    buffer = io.StringIO()
    print_report(report, Console(file=buffer, width=width, color_system=None, legacy_windows=False))
    return "\n".join(line.rstrip() for line in buffer.getvalue().splitlines()) + "\n"


def print_report(report: Report, console: Console | None = None) -> None:
    """Print tables, what is absent, and one sentence a metric; to the terminal if no console is given."""
    from rich.console import Console
    from rich.text import Text

    console = console or Console(highlight=False)
    if report.printed is not None and report.printed[0] == console.width:
        console.print(Text.from_ansi(report.printed[1]), soft_wrap=True, end="")
    else:
        _print_tables(report.with_tables(), console)
    for sentence in report.collection.incomplete:
        console.print(f"Incomplete: {sentence}", markup=False, highlight=False, style="bold red")
    states = ", ".join(f"{count} {state}" for state, count in state_counts(report.records).items())
    console.print(f"{counted(report.expected, 'run')} expected: {states}.", markup=False, highlight=False)
    count = len(report.problems)
    if count:
        said = f"{counted(count, 'remark')} on single runs; they are listed in the report."
        console.print(said, markup=False, highlight=False)
    pages = [file for file in report.files if file.suffix == ".html"] or report.files[:1]
    for page in pages:
        others = _beside(page, [file for file in report.files if file not in pages])
        said = f"Report: {page}{'' if report.is_fresh else ' (unchanged)'}{f' (beside it: {others})' if others else ''}"
        console.print(said, markup=False, soft_wrap=True)


def styled_tables(report: Report) -> tuple[int, str]:
    """(columns of the terminal, the tables as they are printed there, with its codes for bold and colours)."""
    import io

    from rich.console import Console

    width = Console().width
    buffer = io.StringIO()
    _print_tables(report, Console(file=buffer, width=width, force_terminal=True, color_system="standard"))
    return width, buffer.getvalue()


def _print_tables(report: Report, console: Console) -> None:
    for table in report.tables:
        for part in _parts(table, console.width):
            console.print(part, highlight=False)
        for labels in twins.twins(table):
            console.print(twins.sentence(labels), markup=False, highlight=False)
    for ranking in report.rankings:
        order = ", ".join(f"{loss.label} {loss.mean_rank:.2f}" for loss in ranking.losses)
        said = f"Mean ranks by {ranking.metric.label}: {order}. {notes.ranking_words(ranking)}"
        console.print(said, markup=False, highlight=False)


def _beside(page: Path, files: Sequence[Path]) -> str:
    """`report.md, runs.csv, figures/ (12 files)`."""
    names = [file.name for file in files if file.parent == page.parent]
    folders = Counter(file.parent.name for file in files if file.parent != page.parent)
    return ", ".join([*names, *(f"{name}/ ({counted(count, 'file')})" for name, count in sorted(folders.items()))])


def _parts(table: Table, width: int) -> list[RenderableType]:
    """The table, in several of as many columns as the terminal has room for, and a sentence a metric."""
    from rich.text import Text

    label = min(max((len(row.label) for row in table.rows), default=0), MAX_LABEL)
    count = max(1, (width - label - SEEDS_COLUMN) // METRIC_COLUMN)
    starts = range(0, max(1, len(table.metrics)), count)
    grids = [_grid(table, range(start, min(start + count, len(table.metrics))), is_first=not start) for start in starts]
    sentences: list[RenderableType] = [
        Text(f"{f.metric.label}: {f.headline}{f' ({f.value})' if f.value else ''}. {f.detail}") for f in findings(table)
    ]
    return [*grids, *sentences, Text("")]


def _grid(table: Table, places: range, is_first: bool) -> RenderableType:
    from rich import box
    from rich.table import Table as Grid
    from rich.text import Text

    title = Text(table.title) if is_first else None
    grid = Grid(title=title, box=box.SIMPLE_HEAD, title_justify="left", title_style="bold", padding=(0, 1, 0, 0))
    longest = max((len(row.label) for row in table.rows), default=0)
    grid.add_column("loss", overflow="fold", min_width=min(longest, MAX_LABEL))
    grid.add_column("seeds", no_wrap=True)
    for metric in (table.metrics[place] for place in places):
        unit = f"({metric.unit}) " if metric.unit else ""
        grid.add_column(Text(f"{metric.label}\n{unit}{arrow(metric)}"), justify="right", overflow="fold")
    for row in table.rows:
        label = Text(row.label)
        if row.is_baseline:
            label.append("\n(baseline)", style="dim")
        seeds = Text(row.coverage.replace(": ", "\n").replace(", ", "\n"), style="red" if row.absent else "")
        grid.add_row(label, seeds, *(_cell(row, row.cells[place]) for place in places))
    return grid


def _cell(row: Row, cell: Cell) -> Text:
    from rich.text import Text

    if cell.mean is None:
        said = "" if cell.absent == row.absent else f" {cell.absence}"  # the column of seeds may say it already
        return Text(f"—{said}", style="red") + _provisional(cell)
    style = {"best": "bold", "second": "underline", None: ""}[cell.mark]
    text = Text()
    text.append(number(cell.mean, cell.metric), style=style)
    # Marks must survive in plain text, where neither bold nor underline does.
    text.append({"best": "*", "second": "'", None: ""}[cell.mark])
    if cell.sd is not None:
        text.append(f" ± {number(cell.sd, cell.metric)}")
    if cell.comparison and cell.comparison.verdict:
        text.append(" ▲" if cell.comparison.verdict == "better" else " ▼")
    if cell.absent:
        text.append(f"\n({row.note(cell)})", style="red")
    return text + _provisional(cell)


def _provisional(cell: Cell) -> Text:
    from rich.text import Text

    shown = "".join(f"\nseed {seed}: {number(value, cell.metric)}" for seed, value in cell.provisional)
    return Text(shown, style="dim italic")
