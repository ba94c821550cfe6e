"""Statistics of the report: intervals, paired differences, corrections.

Only `scipy.special` is used (and only when a function needs it): it loads in a tenth of the time of `scipy.stats`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

SEED = 20240913  # of resampled intervals and sign flips, unless the user names another


def mean(values: Sequence[float]) -> float:
    """Arithmetic mean. Raises ValueError without values."""
    if not values:
        raise ValueError("There is no mean of no values.")
    return math.fsum(values) / len(values)


def standard_deviation(values: Sequence[float]) -> float:
    """Sample standard deviation (n - 1 in the denominator); nan for a single value, which has none."""
    center = mean(values)
    if len(values) == 1:
        return math.nan
    if min(values) == max(values):
        return 0.0  # their mean may be off by a rounding, and that is no deviation
    return math.sqrt(math.fsum((value - center) ** 2 for value in values) / (len(values) - 1))


def t_interval(values: Sequence[float], confidence: float = 0.95) -> tuple[float, float]:
    """Student's t interval for the mean of independent, roughly normal values: mean ± t(n-1) · s / √n.

    Args:
        values: one value a seed.
        confidence: coverage, between 0 and 1 (exclusive).

    Returns:
        (low, high). One value has no interval: (nan, nan). Equal values give an interval of width 0.

    Raises:
        ValueError: no values, or a confidence outside (0, 1).
    """
    if not 0.0 < confidence < 1.0:
        raise ValueError(f"confidence must lie between 0 and 1, not {confidence}.")
    center = mean(values)
    if len(values) == 1:
        return math.nan, math.nan
    error = standard_deviation(values) / math.sqrt(len(values))
    half = _t_quantile(len(values) - 1, confidence) * error
    return center - half, center + half


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down adjusted p values, in the order of the input (Holm 1979, Scand. J. Statist. 6:65).

    The i-th smallest of m (i from 0) becomes max over j ≤ i of min(1, (m - j) · p_j). No values give no values.

    Raises:
        ValueError: a p value that is nan or outside [0, 1]. Leave out tests that gave none; they are no hypotheses.
    """
    for value in p_values:
        if not 0.0 <= value <= 1.0:
            raise ValueError(f"{value} is no p value: it must lie in [0, 1].")
    count = len(p_values)
    adjusted = [0.0] * count
    largest = 0.0
    for rank, index in enumerate(sorted(range(count), key=lambda i: p_values[i])):
        largest = max(largest, min(1.0, (count - rank) * float(p_values[index])))
        adjusted[index] = largest
    return adjusted


def mcnemar_exact(b: int, c: int) -> float:
    """Two-sided exact p of McNemar's test: is the split of the discordant pairs compatible with a fair coin?

    p = min(1, 2 · P(X ≤ min(b, c))), X ~ Binomial(b + c, 1/2).

    Args:
        b: pairs that only the first model got right.
        c: pairs that only the second model got right.

    Returns:
        p; 1.0 without any discordant pair, which is no evidence of a difference.

    Raises:
        ValueError: a negative or fractional count.
    """
    for value in (b, c):
        if value < 0 or value != int(value):
            raise ValueError(f"A count of pairs must be a whole number of at least 0, not {value}.")
    if b == c:
        return 1.0
    from scipy.special import bdtr

    return min(1.0, 2.0 * float(bdtr(min(b, c), int(b + c), 0.5)))


def pass_at_k(n: int, c: int, k: int) -> float:
    """Unbiased estimate of pass@k: 1 - C(n - c, k) / C(n, k) (Chen et al. 2021, arXiv 2107.03374).

    Args:
        n: samples drawn for one problem.
        c: how many of them are correct.
        k: size of the set of which one must be correct, 1 ≤ k ≤ n.

    Raises:
        ValueError: counts that do not fit together.
    """
    if not 0 <= c <= n:
        raise ValueError(f"c must lie between 0 and n = {n}, not {c}.")
    if not 1 <= k <= n:
        raise ValueError(f"k must lie between 1 and n = {n}, not {k}: pass@k cannot be estimated from fewer samples.")
    if n - c < k:
        return 1.0
    return 1.0 - math.prod((n - c - i) / (n - i) for i in range(k))


def interquartile_mean(values: Sequence[float]) -> float:
    """Mean without the floor(n / 4) smallest and largest values (Agarwal et al. 2021, arXiv 2108.13264)."""
    cut = len(values) // 4
    return mean(sorted(values)[cut : len(values) - cut])


def smallest_detectable(n: int, confidence: float = 0.95) -> float:
    """The smallest |mean difference| that a paired t test over n ≥ 2 seeds finds, in sd of the differences."""
    return _t_quantile(n - 1, confidence) / math.sqrt(n)


@dataclass(frozen=True)
class Difference:
    """A mean difference `a - b` with what can be said about it.

    Attributes:
        estimate: mean of a minus mean of b (over common seeds when paired).
        low, high: t interval; None where there is none.
        p: two-sided p of the hypothesis of no difference; None where there is none.
        method: `paired t`, `Welch t`, or `none`.
        n: number of pairs, or (number of a, number of b).
        note: why there is no interval; empty where there is one.
    """

    estimate: float
    low: float | None
    high: float | None
    p: float | None
    method: str
    n: int | tuple[int, int]
    note: str = ""


def difference(
    a: Mapping[int, float], b: Mapping[int, float], confidence: float = 0.95, min_pairs: int = 3
) -> Difference | None:
    """Difference of two losses over seeds: paired t on at least `min_pairs` common seeds, else Welch's t.

    Args:
        a, b: seed -> value. Equal seeds share data order and initialisation, which is why they pair.

    Returns:
        None if either is empty.
    """
    if not a or not b:
        return None
    common = sorted(set(a) & set(b))
    if len(common) >= min_pairs:
        return _paired([a[seed] - b[seed] for seed in common], confidence)
    return _welch(list(a.values()), list(b.values()), confidence)


def _paired(differences: list[float], confidence: float) -> Difference:
    estimate, n = mean(differences), len(differences)
    error = standard_deviation(differences) / math.sqrt(n)
    if _is_nothing(error, differences):
        return Difference(estimate, None, None, None, "none", n, "no variance between seeds")
    half = _t_quantile(n - 1, confidence) * error
    return Difference(estimate, estimate - half, estimate + half, _t_p(estimate / error, n - 1), "paired t", n)


def _welch(a: list[float], b: list[float], confidence: float) -> Difference:
    estimate = mean(a) - mean(b)
    sizes = (len(a), len(b))
    if min(sizes) < 2:
        return Difference(estimate, None, None, None, "none", sizes, "no test with one seed")
    parts = [standard_deviation(values) ** 2 / len(values) for values in (a, b)]
    error = math.sqrt(sum(parts))
    if _is_nothing(error, a + b):
        return Difference(estimate, None, None, None, "none", sizes, "no variance between seeds")
    freedom = sum(parts) ** 2 / sum(part**2 / (size - 1) for part, size in zip(parts, sizes, strict=True))
    half = _t_quantile(freedom, confidence) * error
    p = _t_p(estimate / error, freedom)
    return Difference(estimate, estimate - half, estimate + half, p, "Welch t", sizes)


def _is_nothing(error: float, values: Sequence[float]) -> bool:
    """True for a standard error that is rounding noise of equal values."""
    return error <= 1e-12 * max(1e-300, max(abs(value) for value in values))


@cache
def _t_quantile(freedom: float, confidence: float) -> float:
    from scipy.special import stdtrit

    return float(stdtrit(freedom, 0.5 + confidence / 2))


def _t_p(t: float, freedom: float) -> float:
    from scipy.special import stdtr

    return 2.0 * float(stdtr(freedom, -abs(t)))
