"""Losses across settings: mean ranks, wins, Friedman's test and Nemenyi's critical difference.

A column is one model and dataset; its losses are ranked by their means. The columns are the unit here (they are the
blocks of the test), so this part speaks about other settings of the same kind, not about other seeds.

J. Demšar, Statistical Comparisons of Classifiers over Multiple Data Sets, JMLR 7 (2006), https://jmlr.org/papers/v7/demsar06a.html.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from lossbench.report import statistics
from lossbench.report.metrics import Metric
from lossbench.report.table import Cell, Table

MIN_COLUMNS = 2
MIN_COLUMNS_CD = 5  # with fewer the critical difference is wider than any difference of ranks that can be seen
LEVEL = 0.05
RESAMPLES = 2000


@dataclass(frozen=True)
class RankedLoss:
    """One loss: its rank in every column (1 is best, ties share the mean rank), their mean, and how often it won.

    `iqm` is the interquartile mean of its seed-wise differences to the baseline over all columns, in logged units
    (of the logarithm where the metric is averaged so); None where there are none. `iqm_low` and `iqm_high` are its 95 %
    interval by the stratified bootstrap; None where no column has two such seeds.
    """

    label: str
    ranks: tuple[float, ...]
    mean_rank: float
    wins: int
    iqm: float | None = None
    iqm_low: float | None = None
    iqm_high: float | None = None


@dataclass(frozen=True)
class Ranking:
    """One metric over all columns.

    Attributes:
        columns: titles of the tables.
        losses: sorted by mean rank.
        left_out: losses without a value in every column; they are not ranked.
        chi_square, p: Friedman's test that all losses rank alike; None with fewer than three losses.
        critical_difference: two mean ranks that differ by less are not told apart (Nemenyi, 5 %); None with fewer
            than five columns.
        groups: (first, last) positions in `losses` of the maximal groups within the critical difference.
    """

    metric: Metric
    columns: tuple[str, ...]
    losses: tuple[RankedLoss, ...]
    left_out: tuple[str, ...]
    chi_square: float | None
    p: float | None
    critical_difference: float | None
    groups: tuple[tuple[int, int], ...] = ()


def rankings(tables: Sequence[Table], seed: int = statistics.SEED) -> list[Ranking]:
    """One ranking for each ranked metric that at least two tables share, for at least two losses; `seed` is that of the
    resampled intervals."""
    metrics = {metric.name: metric for table in tables for metric in table.metrics if metric.is_ranked}
    found = (_ranking(metric, tables, seed) for metric in metrics.values() if metric.direction)
    return [ranking for ranking in found if ranking is not None]


def _ranking(metric: Metric, tables: Sequence[Table], seed: int) -> Ranking | None:
    cells = [_cells(table, metric.name) for table in tables]
    used = [(table, column) for table, column in zip(tables, cells, strict=True) if any(c.n for c in column.values())]
    if len(used) < MIN_COLUMNS:
        return None
    everywhere = set.intersection(*({label for label, cell in column.items() if cell.n} for _, column in used))
    labels = sorted(everywhere)
    left_out = sorted({label for _, column in used for label in column} - everywhere)
    if len(labels) < 2:
        return None
    ranks = []
    for _, column in used:
        means = [column[label].mean or 0.0 for label in labels]
        ranks.append(rank([-mean for mean in means] if metric.direction == "higher" else means))
    by_loss = [tuple(row[i] for row in ranks) for i in range(len(labels))]
    losses = [
        RankedLoss(label, own, statistics.mean(own), sum(value == 1.0 for value in own), *_iqm(label, used, seed))
        for label, own in zip(labels, by_loss, strict=True)
    ]
    losses.sort(key=lambda loss: (loss.mean_rank, loss.label))
    chi_square, p = friedman(ranks) if len(labels) >= 3 else (None, None)
    critical = nemenyi_critical_difference(len(labels), len(used)) if len(used) >= MIN_COLUMNS_CD else None
    groups = () if critical is None else within([loss.mean_rank for loss in losses], critical)
    titles = tuple(table.title for table, _ in used)
    return Ranking(metric, titles, tuple(losses), tuple(left_out), chi_square, p, critical, groups)


def _cells(table: Table, name: str) -> dict[str, Cell]:
    place = next((i for i, metric in enumerate(table.metrics) if metric.name == name), None)
    return {} if place is None else {row.label: row.cells[place] for row in table.rows}


def _iqm(
    label: str, used: Sequence[tuple[Table, dict[str, Cell]]], seed: int
) -> tuple[float | None, float | None, float | None]:
    """(interquartile mean, low, high) of the seed-wise differences to the baseline."""
    strata: list[list[float]] = []
    for _, column in used:
        comparison = column[label].comparison
        reference = column.get(comparison.baseline) if comparison else None
        if reference is None:
            continue
        scale = math.log if reference.metric.is_log_mean else float
        base = dict(reference.values)
        strata.append([scale(value) - scale(base[run]) for run, value in column[label].values if run in base])
    strata = [deltas for deltas in strata if deltas]
    if not strata:
        return None, None, None
    return statistics.interquartile_mean([delta for deltas in strata for delta in deltas]), *iqm_interval(strata, seed)


def iqm_interval(strata: Sequence[Sequence[float]], seed: int = statistics.SEED) -> tuple[float | None, float | None]:
    """The 95 % percentile interval of the interquartile mean, by the stratified bootstrap of Agarwal et al. (2021).

    Values are drawn again within each stratum (the seeds of one setting), `RESAMPLES` times with a fixed seed, and the
    mean is taken over all strata together. (None, None) where no stratum has two values.
    """
    if all(len(values) < 2 for values in strata):
        return None, None
    import numpy as np

    values = np.concatenate([np.asarray(part, dtype=float) for part in strata])
    order = np.argsort(values, kind="stable")
    upto = np.cumsum(_draws(tuple(map(len, strata)), seed)[order], axis=0, dtype=np.float32)  # whole, and so exact
    cut = len(values) // 4
    # How many of each value's draws lie between the smallest and the largest quarter.
    kept = np.diff(np.clip(upto, cut, len(values) - cut, out=upto), axis=0, prepend=np.float32(cut))
    means = values[order] @ kept / (len(values) - 2 * cut)
    low, high = np.percentile(means, [2.5, 97.5])
    return float(low), float(high)


@cache
def _draws(sizes: tuple[int, ...], seed: int) -> Any:
    """(sum of sizes, RESAMPLES) float32: how often each value is drawn, from its own stratum."""
    import numpy as np

    random = np.random.default_rng([seed, *sizes])
    drawn = [random.multinomial(size, np.full(size, 1 / size), RESAMPLES) for size in sizes]
    return np.ascontiguousarray(np.hstack(drawn).T, dtype=np.float32)


def rank(values: Sequence[float]) -> list[float]:
    """Ranks from 1 for the smallest; equal values share the mean of their ranks."""
    order = sorted(range(len(values)), key=lambda i: values[i])
    ranks = [0.0] * len(values)
    start = 0
    while start < len(order):
        end = start
        while end + 1 < len(order) and values[order[end + 1]] == values[order[start]]:
            end += 1
        for place in range(start, end + 1):
            ranks[order[place]] = (start + end) / 2 + 1
        start = end + 1
    return ranks


def friedman(ranks: Sequence[Sequence[float]]) -> tuple[float | None, float | None]:
    """Friedman's chi-square and its p, corrected for ties: do the losses rank alike in all columns?

    chi2 = (12 / (n k (k+1)) * sum_j R_j^2 - 3 n (k+1)) / (1 - sum(t^3 - t) / (n (k^3 - k))), k - 1 degrees of freedom.

    Args:
        ranks: (n columns, k losses), k >= 3.

    Returns:
        (None, None) where all losses tie in every column: there is nothing to test.
    """
    n, k = len(ranks), len(ranks[0])
    sums = [math.fsum(row[j] for row in ranks) for j in range(k)]
    tied = sum(row.count(value) ** 3 - row.count(value) for row in map(list, ranks) for value in set(row))
    correction = 1 - tied / (n * (k**3 - k))
    if correction <= 1e-12:
        return None, None
    statistic = (12 / (n * k * (k + 1)) * math.fsum(s * s for s in sums) - 3 * n * (k + 1)) / correction
    from scipy.special import chdtrc

    statistic = max(0.0, statistic)
    return statistic, float(chdtrc(k - 1, statistic))


def nemenyi_critical_difference(losses: int, columns: int, level: float = LEVEL) -> float:
    """q / sqrt(2) * sqrt(k (k+1) / (6 n)), q the upper `level` point of the studentized range of k normal values."""
    q = studentized_range_quantile(1 - level, losses)
    return q / math.sqrt(2) * math.sqrt(losses * (losses + 1) / (6 * columns))


@cache
def studentized_range_quantile(probability: float, count: int) -> float:
    """The quantile of the range of `count` standard normal values (infinite degrees of freedom).

    P(range <= q) = k * integral of phi(z) (Phi(z) - Phi(z - q))^(k-1) dz, by the trapezoidal rule, which is exact to
    rounding for such a smooth integrand; `scipy.stats` has the general case, but loads in most of a second.
    """
    import numpy as np
    from scipy.special import ndtr

    z = np.linspace(-9.0, 9.0, 181)
    density = np.exp(-0.5 * z * z) / math.sqrt(2 * math.pi)
    below = ndtr(z)

    def cumulative(q: float) -> float:
        return float(count * np.trapezoid(density * (below - ndtr(z - q)) ** (count - 1), z))

    low, high = 0.0, 40.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if cumulative(middle) < probability else (low, middle)
    return (low + high) / 2


def within(sorted_ranks: Sequence[float], critical: float) -> tuple[tuple[int, int], ...]:
    """Maximal runs of two or more neighbours whose first and last rank differ by at most `critical`."""
    groups: list[tuple[int, int]] = []
    for first in range(len(sorted_ranks)):
        last = max(i for i in range(first, len(sorted_ranks)) if sorted_ranks[i] - sorted_ranks[first] <= critical)
        if last > first and not (groups and groups[-1][1] >= last):
            groups.append((first, last))
    return tuple(groups)
