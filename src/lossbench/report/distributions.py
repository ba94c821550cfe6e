"""The few distribution functions that the report needs: Student's t, chi-square, the fair coin, the normal.

Loading `scipy.special` for them would take as long as reading a thousand runs; it is the oracle of the tests.
Continued fractions and series are those of Abramowitz and Stegun, Handbook of Mathematical Functions (6.5, 26.5).
"""

from __future__ import annotations

import math
from functools import cache
from statistics import NormalDist

TINY = 1e-300
PRECISION = 1e-16
STEPS = 10_000  # of a series or fraction; tens are enough for what a report holds


def t_two_sided(t: float, freedom: float) -> float:
    """P(|T| >= |t|) of Student's t with `freedom` > 0 degrees, whole or not."""
    square = t * t
    return incomplete_beta(freedom / 2, 0.5, freedom / (freedom + square)) if square < math.inf else 0.0


@cache
def t_quantile(freedom: float, confidence: float) -> float:
    """The t with P(|T| < t) = `confidence`, in (0, 1).

    Newton's method on log P(|T| >= t), which is concave, from the quantile of the normal, which lies below.
    """
    tail = 1 - confidence
    scale = math.exp(math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)) / math.sqrt(freedom * math.pi)
    t = NormalDist().inv_cdf(0.5 + confidence / 2)
    for _ in range(STEPS):
        p = t_two_sided(t, freedom)
        density = scale * (1 + t * t / freedom) ** (-(freedom + 1) / 2)
        step = p / (2 * density) * math.log(p / tail)
        t += step
        if abs(step) <= 4e-16 * t:
            break
    return t


def chi_square_tail(freedom: float, value: float) -> float:
    """P(X >= value) of the chi-square distribution with `freedom` > 0 degrees."""
    a, x = freedom / 2, value / 2
    if x <= 0:
        return 1.0
    front = math.exp(a * math.log(x) - x - math.lgamma(a))
    if x < a + 1:
        return 1 - front * _gamma_series(a, x)
    return front * _gamma_fraction(a, x)


def fair_coin_below(k: int, n: int) -> float:
    """P(X <= k) of the number of heads of `n` fair coins, exact before it is rounded."""
    count = ways = 1
    for i in range(k):
        ways = ways * (n - i) // (i + 1)
        count += ways
    return count / (1 << n)


def normal_below(z: float) -> float:
    """P(Z <= z) of the standard normal distribution."""
    return 0.5 * math.erfc(-z / math.sqrt(2))


def incomplete_beta(a: float, b: float, x: float) -> float:
    """The regularized incomplete beta function I_x(a, b), 0 <= x <= 1."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x))
    if x < (a + 1) / (a + b + 2):
        return front * _beta_fraction(a, b, x) / a
    return 1 - front * _beta_fraction(b, a, 1 - x) / b


def _beta_fraction(a: float, b: float, x: float) -> float:
    """26.5.8, by Lentz's method."""
    c, d = 1.0, 1 / _not_zero(1 - (a + b) * x / (a + 1))
    found = d
    for m in range(1, STEPS):
        for numerator in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 / _not_zero(1 + numerator * d)
            c = _not_zero(1 + numerator / c)
            found *= c * d
        if abs(c * d - 1) < PRECISION:
            break
    return found


def _gamma_series(a: float, x: float) -> float:
    """6.5.29."""
    term = total = 1 / a
    for n in range(1, STEPS):
        term *= x / (a + n)
        total += term
        if term < total * PRECISION:
            break
    return total


def _gamma_fraction(a: float, x: float) -> float:
    """6.5.31, by Lentz's method."""
    b = x + 1 - a
    c, d = 1 / TINY, 1 / _not_zero(b)
    found = d
    for n in range(1, STEPS):
        b += 2
        numerator = -n * (n - a)
        d = 1 / _not_zero(numerator * d + b)
        c = _not_zero(b + numerator / c)
        found *= c * d
        if abs(c * d - 1) < PRECISION:
            break
    return found


def _not_zero(value: float) -> float:
    return value if abs(value) > TINY else TINY
