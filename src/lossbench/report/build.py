"""The job of `lossbench report`: collect, tabulate, write."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from lossbench.report import output, papers, sources, writers
from lossbench.report.checkpoints import CheckpointPair, compare_checkpoints, scores_of
from lossbench.report.choices import Choices
from lossbench.report.collect import Collection, collect
from lossbench.report.curves import Panel, read_panels
from lossbench.report.metrics import choose_columns
from lossbench.report.numbers import timestamp
from lossbench.report.papers import PaperTable
from lossbench.report.ranks import Ranking, rankings
from lossbench.report.records import RunRecord, State
from lossbench.report.reliability import ReliabilityCurve, reliability_curves
from lossbench.report.samples import Sample, read_samples
from lossbench.report.selection import parse_where, select, since
from lossbench.report.settings import oversized
from lossbench.report.table import Table, build_tables
from lossbench.report.variants import Variant, split_variants

if TYPE_CHECKING:
    from rich.console import Console

    from lossbench.report.figures import Figure

EVERYTHING = Choices()


@dataclass(frozen=True)
class Report:
    """All that the writers lay out. `panels`, `samples`, `pairs` and `reliability` are parallel to `tables`.

    `files` were written from it. Where they were found to be what would be written, `is_fresh` is False, and there is
    nothing but `collection`, `choices` and `printed`: (columns, text for the terminal) of the tables, if it is kept.
    """

    collection: Collection
    variants: tuple[Variant, ...]
    tables: tuple[Table, ...]
    choices: Choices = EVERYTHING
    panels: tuple[tuple[Panel, ...], ...] = ()
    samples: tuple[tuple[Sample, ...], ...] = ()
    pairs: tuple[tuple[CheckpointPair, ...], ...] = ()
    reliability: tuple[tuple[ReliabilityCurve, ...], ...] = ()
    rankings: tuple[Ranking, ...] = ()
    paper: PaperTable | None = None
    files: tuple[Path, ...] = ()
    is_fresh: bool = True
    printed: tuple[int, str] | None = None

    @property
    def records(self) -> tuple[RunRecord, ...]:
        """All runs, missing ones included."""
        return self.collection.records

    @property
    def studies(self) -> list[str]:
        """Names of the studies that the runs belong to."""
        return sorted({record.study for record in self.records if record.study})

    @property
    def newest(self) -> str | None:
        """ISO time of the newest run: when it finished, was last alive, or began; the report carries no other time."""
        running = [record.heartbeat for record in self.records if record.state is State.RUNNING]
        known = [time for record in self.records for time in (record.finished, record.created)]
        times = [time for time in (*running, *known) if timestamp(time)]
        return max(times, key=lambda time: timestamp(time) or 0.0, default=None)

    @property
    def expected(self) -> int:
        """Runs of the plan; without a plan, the runs that were found. Duplicates and unplanned runs do not count."""
        if self.collection.has_plan:
            return sum(record.planned for record in self.records if record.state is not State.DUPLICATE)
        return sum(record.state is not State.DUPLICATE for record in self.records)

    @property
    def problems(self) -> list[tuple[str, str]]:
        """(where, sentence) of everything that a reader should know, in a fixed order."""
        listed = [("", problem) for problem in (*self.collection.incomplete, *self.collection.problems)]
        for record in self.records:
            listed += [(record.location or record.name or record.id, problem) for problem in record.problems]
        return listed

    @cached_property
    def figures(self) -> tuple[dict[str, Figure], ...]:
        """The figures of each table by name, drawn once for the page and for files."""
        from lossbench.report.figures import draw_all

        return draw_all(self)

    @property
    def lacks(self) -> list[str]:
        """What `--strict` refuses: runs that are missing or not finished and whole, and services that gave a part."""
        counts: dict[State, int] = {}
        for record in self.records:
            if record.state not in (State.FINISHED, State.DUPLICATE):
                counts[record.state] = counts.get(record.state, 0) + 1
        return [*(f"{counts[state]} {state}" for state in State if state in counts), *self.collection.incomplete]

    def print(self, console: Console | None = None) -> None:
        """Print the tables, and where the files lie, to the terminal (or to another rich console)."""
        from lossbench.report.terminal import print_report

        print_report(self, console)

    def with_tables(self) -> Report:
        """The report with its tables, for one that was found unchanged."""
        return self if self.is_fresh else _tabulate(self)


def assemble(
    paths: Sequence[str | Path],
    choices: Choices = EVERYTHING,
    now: float | None = None,
    options: sources.Options = sources.DEFAULT,
) -> Report:
    """Everything but the writing.

    Args:
        paths: run folders, study folders or folders of studies, and what else a source accepts.
        choices: what the user chose to see.
        now: seconds since 1970 (the clock if None); it only tells running runs from crashed ones.
        options: how sources read that ask a service.

    Raises:
        NoRunsError: nothing was found.
        ConfigError: a baseline, metric, condition or setting that no run has.
        SourceError: a service refused to answer.
    """
    return _details(_tabulate(_collect(paths, choices, now, options)))[0]


def build(
    paths: Sequence[str | Path],
    out: str | Path,
    formats: Iterable[str] | None = None,
    choices: Choices = EVERYTHING,
    now: float | None = None,
    options: sources.Options = sources.DEFAULT,
    cache: bool = False,
) -> Report:
    """Collect the runs below `paths` and write the report into the folder `out`.

    The same runs give the same bytes: no clock, no host, no order of the file system. Files are written aside and
    renamed into place when all of them are there, so an older report stays whole if anything fails.

    Args:
        paths, choices, now, options: see `assemble`.
        out: the folder to write to; made if it is absent. Files in it that the report does not write are left alone.
        formats: names of writers (`writers.available()`); all of them if None.
        cache: leave the files as they are where the same runs, choices and code wrote them (`out/.cache` knows).

    Raises:
        NoRunsError, ConfigError, SourceError: see `assemble`; ConfigError also for an unknown format.
        OutputError: `out` cannot be written.
    """
    out = Path(out)
    chosen = writers.choose(formats)
    report = _collect(paths, choices, now, options)
    digest = ""
    if cache:
        names = sorted(module.__name__ for module in chosen)  # type: ignore[attr-defined]
        collection = report.collection
        about = (collection.has_plan, collection.problems, collection.incomplete, collection.baseline)
        digest = output.fingerprint(report.records, names, formats is None, vars(choices), about)
        state = output.unchanged(out, digest)
        if state is not None:
            written = tuple(out / name for name in sorted(state["files"]))
            report = _with_problems(report, state["problems"])
            return replace(report, files=written, is_fresh=False, printed=(state["columns"], state["printed"]))
    report, found = _details(_tabulate(report))
    files: dict[str, str | bytes] = {}
    for writer in chosen:
        by_default = getattr(writer, "by_default", None)
        if formats is None and by_default is not None and not by_default(report):
            continue
        files.update(writer.write(report))
    output.write_files(files, out)
    if cache:
        from lossbench.report.terminal import styled_tables

        columns, text = styled_tables(report)
        output.remember(out, digest, files, {"problems": found, "columns": columns, "printed": text})
        report = replace(report, printed=(columns, text))
    return replace(report, files=tuple(out / name for name in sorted(files)))


def _collect(paths: Sequence[str | Path], choices: Choices, now: float | None, options: sources.Options) -> Report:
    """The runs alone."""
    conditions = parse_where(choices.where) + ((since(choices.since),) if choices.since else ())
    report = Report(select(collect(paths, now, options), conditions), (), (), choices)
    large = {record.location: (said,) for record in report.records if (said := oversized(record.config))}
    return _with_problems(report, large) if large else report


def _tabulate(report: Report) -> Report:
    """Runs and tables, without the larger files of the runs."""
    choices, records = report.choices, report.records
    present = {name for record in records for name in record.metrics}
    present |= {name for record in records if record.state in choices.include for name in record.last_values}
    columns = choose_columns(present, choices.metrics)
    variants = split_variants(records, choices.group_by)
    planned = report.collection.baseline
    baseline = choices.baseline or (planned if any(variant.loss == planned for variant in variants) else None)
    tables = build_tables(variants, columns, baseline, choices.include, choices.sort)
    paper = papers.compare(choices.paper, tables) if choices.paper else None
    found = tuple(rankings(tables, choices.seed))
    return replace(report, variants=tuple(variants), tables=tuple(tables), rankings=found, paper=paper)


def _details(report: Report) -> tuple[Report, dict[str, tuple[str, ...]]]:
    """The report with what its runs' logs and examples say, and the problems found in them by location."""
    panels, samples, pairs, reliability = [], [], [], []
    found: dict[str, tuple[str, ...]] = {}
    rows = sum(len(table.rows) for table in report.tables)
    for table in report.tables:
        curves, of_histories = read_panels(table, rows)
        answers, of_examples = read_samples(table, rows)
        scores = scores_of(table)
        panels.append(tuple(curves))
        samples.append(tuple(answers))
        pairs.append(tuple(compare_checkpoints(table, scores, report.choices.seed)))
        reliability.append(tuple(reliability_curves(table, scores)))
        for location, sentences in (*of_histories.items(), *of_examples.items()):
            found[location] = found.get(location, ()) + sentences
    report = replace(
        _with_problems(report, found),
        panels=tuple(panels),
        samples=tuple(samples),
        pairs=tuple(pairs),
        reliability=tuple(reliability),
    )
    return report, found


def _with_problems(report: Report, found: Mapping[str, Sequence[str]]) -> Report:
    """The report whose records list problems that were found later, by location."""
    records = tuple(
        replace(r, problems=(*r.problems, *found[r.location])) if r.location in found else r for r in report.records
    )
    return replace(report, collection=replace(report.collection, records=records))
