"""The job of `lossbench report`: collect, tabulate, write."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from lossbench.report import writers
from lossbench.report.collect import Collection, collect
from lossbench.report.curves import Panel, read_panels
from lossbench.report.errors import OutputError
from lossbench.report.metrics import choose_columns
from lossbench.report.numbers import timestamp
from lossbench.report.records import RunRecord, State
from lossbench.report.samples import Sample, read_samples
from lossbench.report.table import Table, build_tables
from lossbench.report.variants import Variant, split_variants

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(frozen=True)
class Report:
    """All that the writers lay out. `panels` and `samples` are parallel to `tables`; `files` were written from it."""

    collection: Collection
    variants: tuple[Variant, ...]
    tables: tuple[Table, ...]
    panels: tuple[tuple[Panel, ...], ...] = ()
    samples: tuple[tuple[Sample, ...], ...] = ()
    files: tuple[Path, ...] = ()

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
        """ISO time of the newest run: when it finished, or began. The report carries this time instead of today's."""
        times = [time for record in self.records for time in (record.finished, record.created) if timestamp(time)]
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
        listed = [("", problem) for problem in self.collection.problems]
        for record in self.records:
            listed += [(record.location or record.name or record.id, problem) for problem in record.problems]
        return listed

    def print(self, console: Console | None = None) -> None:
        """Print the tables, and where the files lie, to the terminal (or to another rich console)."""
        from lossbench.report.terminal import print_report

        print_report(self, console)


def assemble(
    paths: Sequence[str | Path],
    baseline: str | None = None,
    metrics: Iterable[str] | None = None,
    now: float | None = None,
) -> Report:
    """Everything but the writing.

    Args:
        paths: run folders, study folders or folders of studies.
        baseline: the loss that others are compared with; cross_entropy if it is there.
        metrics: columns by name; the default columns that are present if None.
        now: seconds since 1970 (the clock if None); it only tells running runs from crashed ones.

    Raises:
        NoRunsError: nothing was found.
        ConfigError: a baseline or metric that no run has.
    """
    collection = collect(paths, now)
    present = {name for record in collection.records for name in record.metrics}
    columns = choose_columns(present, metrics)
    variants = split_variants(collection.records)
    tables = build_tables(variants, columns, baseline)
    panels: list[tuple[Panel, ...]] = []
    samples: list[tuple[Sample, ...]] = []
    found: dict[str, tuple[str, ...]] = {}
    for table in tables:
        curves, of_histories = read_panels(table)
        answers, of_examples = read_samples(table)
        panels.append(tuple(curves))
        samples.append(tuple(answers))
        for location, sentences in (*of_histories.items(), *of_examples.items()):
            found[location] = found.get(location, ()) + sentences
    records = tuple(
        replace(r, problems=r.problems + found[r.location]) if r.location in found else r for r in collection.records
    )
    return Report(replace(collection, records=records), tuple(variants), tuple(tables), tuple(panels), tuple(samples))


def build(
    paths: Sequence[str | Path],
    out: str | Path,
    formats: Iterable[str] | None = None,
    baseline: str | None = None,
    metrics: Iterable[str] | None = None,
    now: float | None = None,
) -> Report:
    """Collect the runs below `paths` and write the report into the folder `out`.

    The same runs give the same bytes: no clock, no host, no order of the file system. Files are written aside and
    renamed into place when all of them are there, so an older report stays whole if anything fails.

    Args:
        paths, baseline, metrics, now: see `assemble`.
        out: the folder to write to; made if it is absent. Files in it that the report does not write are left alone.
        formats: names of writers (`writers.available()`); all of them if None.

    Raises:
        NoRunsError, ConfigError: see `assemble`; also for an unknown format.
        OutputError: `out` cannot be written.
    """
    chosen = writers.choose(formats)
    report = assemble(paths, baseline, metrics, now)
    files: dict[str, str] = {}
    for writer in chosen:
        files.update(writer.write(report))
    write_files(files, Path(out))
    return replace(report, files=tuple(Path(out) / name for name in sorted(files)))


def write_files(files: dict[str, str], out: Path) -> None:
    """Write all files into a temporary folder inside `out` (the same file system), then rename them into place.

    Raises:
        OutputError: the folder cannot be made or written; files that were there are as they were.
    """
    is_new = not out.exists()
    aside = None
    try:
        out.mkdir(parents=True, exist_ok=True)
        aside = Path(tempfile.mkdtemp(prefix=".report-", dir=out))
        for name, text in files.items():
            target = aside / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8", newline="")
        for name in files:
            (out / name).parent.mkdir(parents=True, exist_ok=True)
            os.replace(aside / name, out / name)
    except OSError as error:
        raise OutputError(
            f"The report cannot be written to {out}: {error.strerror or error}. What was there is as it was; "
            "name a folder that can be written with --out."
        ) from error
    finally:
        if aside is not None:
            shutil.rmtree(aside, ignore_errors=True)
            if is_new and not any(out.iterdir()):
                with suppress(OSError):
                    out.rmdir()
