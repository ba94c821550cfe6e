"""The table model: rows losses, columns metrics, one table for each model and dataset. Writers only lay it out."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from lossbench.errors import ConfigError, nearest
from lossbench.report import statistics
from lossbench.report.formatting import number
from lossbench.report.metrics import Metric
from lossbench.report.records import RunRecord, State
from lossbench.report.statistics import Difference
from lossbench.report.variants import Variant, different_settings

DEFAULT_BASELINE = "cross_entropy"
BY_NAME = "name"
LEVEL = 0.05
Mark = Literal["best", "second"]


@dataclass(frozen=True)
class Comparison:
    """A cell against the baseline's cell of the same column.

    `difference` is in logged units; for a metric that is averaged on the log scale it is a ratio (1 means equal).
    `relative` is the difference as a fraction of the baseline's mean; None where that is not positive. `p_holm` is
    corrected over the column. `verdict` says what survives at the 5 % level.
    """

    baseline: str
    difference: Difference
    relative: float | None = None
    p_holm: float | None = None
    verdict: Literal["better", "worse"] | None = None


@dataclass(frozen=True)
class Cell:
    """All that is known of one loss and one metric, in logged units.

    Attributes:
        values: (seed, value) of the valid values of finished runs.
        absent: why the other runs have no value here, e.g. {"failed": 2, "missing": 1}; {} if all have one.
        mean, sd, low, high: over `values`; sd and the 95 % t interval need two seeds. On the log scale where the
            metric says so (mean and interval are exp of it; sd is that of the values themselves).
        rank: place of the mean in its column among cells with at least two seeds, 1 for the best; equal means share the
            better one.
        provisional: (seed, last logged value) of runs that have not ended, where the user asked to see them. They enter
            no mean, mark or test.
    """

    metric: Metric
    values: tuple[tuple[int, float], ...]
    absent: dict[str, int]
    mean: float | None = None
    sd: float | None = None
    low: float | None = None
    high: float | None = None
    mark: Mark | None = None
    rank: int | None = None
    comparison: Comparison | None = None
    provisional: tuple[tuple[int, float], ...] = ()

    @property
    def n(self) -> int:
        """Seeds that have a value."""
        return len(self.values)

    @property
    def expected(self) -> int:
        """Seeds that should have one."""
        return self.n + sum(self.absent.values())

    @property
    def absence(self) -> str:
        """`2 failed, 1 missing`; empty where nothing is absent."""
        return spelled(self.absent)

    @property
    def coverage(self) -> str:
        """`2/3` where seeds are absent; empty where none is."""
        return f"{self.n}/{self.expected}" if self.absent else ""


@dataclass(frozen=True)
class Row:
    """One variant of a loss; `cells` in the order of the table's metrics."""

    variant: Variant
    cells: tuple[Cell, ...]
    is_baseline: bool = False

    @property
    def absent(self) -> dict[str, int]:
        """Runs without any usable number, by state: what is absent from every cell of the row."""
        states = Counter(str(run.state) for run in self.variant.runs if not is_usable(run))
        return dict(sorted(states.items()))

    @property
    def coverage(self) -> str:
        """`3/3`, or `1/3: 2 failed`: the runs whose numbers are used, and what became of the others."""
        total = len(self.variant.runs)
        absent = self.absent
        text = f"{total - sum(absent.values())}/{total}"
        return f"{text}: {spelled(absent)}" if absent else text

    def note(self, cell: Cell) -> str:
        """What a cell lacks, in words only where the row does not say it already: `2/3`, `1/3: 1 invalid`."""
        return f"{cell.coverage}: {cell.absence}" if cell.absent and cell.absent != self.absent else cell.coverage

    @property
    def label(self) -> str:
        """The loss's name, with its number where there are several variants."""
        return self.variant.label


@dataclass(frozen=True)
class Table:
    """All losses on one model and dataset. The baseline's row comes first, the others by name."""

    model: str
    dataset: str
    metrics: tuple[Metric, ...]
    rows: tuple[Row, ...]
    baseline: str | None

    @property
    def title(self) -> str:
        """`model on dataset`."""
        return f"{self.model} on {self.dataset}"

    @property
    def seeds(self) -> list[int]:
        """All seeds of its runs, sorted."""
        return sorted({run.seed for row in self.rows for run in row.variant.runs if run.seed is not None})


def spelled(absent: Mapping[str, int]) -> str:
    """`2 failed, 1 missing`."""
    return ", ".join(f"{count} {reason}" for reason, count in absent.items())


def is_usable(run: RunRecord) -> bool:
    """True if a run came to its end and left numbers."""
    return run.state.is_ended and bool(run.metrics)


def build_tables(
    variants: Sequence[Variant],
    metrics: Sequence[Metric],
    baseline: str | None = None,
    include: Collection[State] = (),
    sort: str | None = None,
) -> list[Table]:
    """One table for each (model, dataset).

    Args:
        variants: rows, in any order.
        metrics: columns; a column without any value in a table is left out of that table.
        baseline: name of the loss that others are compared with; None for cross_entropy where it is there.
        include: states of runs whose last logged values are shown as provisional.
        sort: a column by whose mean the rows below the baseline are ordered, best first; by name if None.

    Raises:
        ConfigError: the named baseline is no loss of these runs, or `sort` no column.
    """
    names = sorted({variant.loss for variant in variants} | {variant.label for variant in variants})
    if baseline is not None and baseline not in names:
        raise ConfigError(f"The baseline {baseline!r} is no loss of these runs.{nearest(baseline, names)}")
    baseline = baseline or (DEFAULT_BASELINE if DEFAULT_BASELINE in names else None)
    columns = [metric.name for metric in metrics]
    if sort is not None and sort != BY_NAME and sort not in columns:
        raise ConfigError(f"--sort: {sort!r} is no column.{nearest(sort, [*columns, BY_NAME])}")
    grouped: dict[tuple[str, str], list[Variant]] = defaultdict(list)
    for variant in variants:
        grouped[variant.model, variant.dataset].append(variant)
    return [_build_table(grouped[key], metrics, baseline, include, sort) for key in sorted(grouped)]


def _build_table(
    variants: list[Variant],
    metrics: Sequence[Metric],
    baseline: str | None,
    include: Collection[State],
    sort: str | None,
) -> Table:
    def is_baseline(variant: Variant) -> bool:
        return baseline is not None and baseline in (variant.loss, variant.label)

    ordered = sorted(
        variants, key=lambda variant: (not is_baseline(variant), variant.loss, len(variant.label), variant.label)
    )
    rows = [Row(v, tuple(make_cell(v, metric, include) for metric in metrics), is_baseline(v)) for v in ordered]
    if sort is not None and sort != BY_NAME:
        place = next(i for i, metric in enumerate(metrics) if metric.name == sort)
        rows.sort(key=lambda row: (not row.is_baseline, _badness(row.cells[place])))
    used = [i for i in range(len(metrics)) if any(_has_content(row.cells[i]) for row in rows)]
    columns = []
    for index in used:
        cells = [row.cells[index] for row in rows]
        columns.append(_compare(_mark(cells), rows))
    rows = [replace(row, cells=tuple(column[i] for column in columns)) for i, row in enumerate(rows)]
    known = baseline if any(row.is_baseline for row in rows) else None
    return Table(ordered[0].model, ordered[0].dataset, tuple(metrics[i] for i in used), tuple(rows), known)


def _has_content(cell: Cell) -> bool:
    return bool(cell.n or cell.absent.get("invalid") or cell.provisional)


def _badness(cell: Cell) -> float:
    """What the rows are sorted by: lower is better, no value is last; without a direction the largest comes first."""
    if cell.mean is None:
        return math.inf
    return cell.mean if cell.metric.direction == "lower" else -cell.mean


def make_cell(variant: Variant, metric: Metric, include: Collection[State] = ()) -> Cell:
    """Values, absences, mean, sd and interval of one variant's metric."""
    values: list[tuple[int, float]] = []
    provisional: list[tuple[int, float]] = []
    absent: Counter[str] = Counter()
    for run in variant.runs:
        value = run.metrics.get(metric.name)
        if not is_usable(run):
            absent[str(run.state)] += 1
            last = run.last_values.get(metric.name)
            if run.state in include and run.seed is not None and last is not None and metric.is_valid(last):
                provisional.append((run.seed, last))
        elif run.seed is None:
            absent["without a seed"] += 1
        elif value is None:
            absent["not recorded"] += 1
        elif not metric.is_valid(value):
            absent["invalid"] += 1
        else:
            values.append((run.seed, value))
    cell = Cell(metric, tuple(values), dict(sorted(absent.items())), provisional=tuple(provisional))
    if not values:
        return cell
    plain = [value for _, value in values]
    scaled = [math.log(value) for value in plain] if metric.is_log_mean else plain
    back = math.exp if metric.is_log_mean else float
    center = back(statistics.mean(scaled))
    if len(plain) == 1:
        return replace(cell, mean=center)
    low, high = (back(bound) for bound in statistics.t_interval(scaled))
    return replace(cell, mean=center, sd=statistics.standard_deviation(plain), low=low, high=high)


def _mark(cells: list[Cell]) -> list[Cell]:
    """Ranks by the mean, and best and second best by the printed mean, among cells with at least two seeds; equal
    prints share a mark."""
    metric = cells[0].metric
    if not metric.is_ranked or metric.direction is None:
        return cells
    badness = [_badness(cell) for cell in cells if cell.n >= 2]
    cells = [replace(c, rank=1 + sum(b < _badness(c) for b in badness)) if c.n >= 2 else c for c in cells]
    eligible = [cell for cell in cells if cell.n >= 2 and cell.mean is not None]
    if len(eligible) < 2:
        return cells
    printed = {id(cell): float(number(cell.mean, metric)) for cell in eligible}
    levels = sorted(set(printed.values()), reverse=metric.direction == "higher")
    if len(levels) == 1:
        return cells  # all print the same: there is no best
    marks: dict[float, Mark] = {levels[0]: "best", levels[1]: "second"}
    if sum(value == levels[0] for value in printed.values()) > 1:
        del marks[levels[1]]  # two share the first place; the next is third
    return [replace(cell, mark=marks.get(printed[id(cell)])) if id(cell) in printed else cell for cell in cells]


def _compare(cells: list[Cell], rows: list[Row]) -> list[Cell]:
    """Differences to the baseline of one column, corrected together."""
    metric = cells[0].metric
    references = [i for i, row in enumerate(rows) if row.is_baseline]
    compared: dict[int, Comparison] = {}
    for index, row in enumerate(rows):
        if row.is_baseline or not references:
            continue
        reference = references[0]
        if len(references) > 1:
            reference = min(references, key=lambda i: (*_distance(rows[i].variant, row.variant), i))
        found = statistics.difference(_scaled(cells[index]), _scaled(cells[reference]))
        if found is not None:
            compared[index] = Comparison(rows[reference].label, found, _relative(found, cells[reference]))
    tested = [index for index, comparison in compared.items() if comparison.difference.p is not None]
    adjusted = statistics.holm([compared[index].difference.p or 0.0 for index in tested])
    for index, p in zip(tested, adjusted, strict=True):
        estimate = compared[index].difference.estimate
        verdict: Literal["better", "worse"] | None = None
        if p < LEVEL and metric.is_ranked and metric.direction is not None:
            verdict = "better" if (estimate > 0) == (metric.direction == "higher") else "worse"
        compared[index] = replace(compared[index], p_holm=p, verdict=verdict)
    result = []
    for index, cell in enumerate(cells):
        comparison = compared.get(index)
        if comparison is not None and metric.is_log_mean:
            comparison = replace(comparison, difference=_as_ratio(comparison.difference))
        result.append(replace(cell, comparison=comparison))
    return result


def _relative(found: Difference, baseline: Cell) -> float | None:
    """The difference as a fraction of the baseline's mean; `found` is in the scale of the average."""
    if baseline.metric.is_log_mean:
        return math.expm1(found.estimate)
    return found.estimate / baseline.mean if baseline.mean is not None and baseline.mean > 0 else None


def _scaled(cell: Cell) -> dict[int, float]:
    return {seed: math.log(value) if cell.metric.is_log_mean else value for seed, value in cell.values}


def _as_ratio(found: Difference) -> Difference:
    low, high = (None if bound is None else math.exp(bound) for bound in (found.low, found.high))
    return replace(found, estimate=math.exp(found.estimate), low=low, high=high)


def _distance(a: Variant, b: Variant) -> tuple[bool, int]:
    """Whether one alone was tuned, and in how many settings, other than those of the loss, two variants differ: the
    fairest baseline was tuned likewise, and has the fewest."""
    keys = different_settings(a.settings, b.settings)
    return a.is_tuned != b.is_tuned, sum(not key.startswith("loss") for key, _, _ in keys)
