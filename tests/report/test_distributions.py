"""scipy is the oracle of every distribution function."""

import math

import pytest
import scipy.special
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from lossbench.report import distributions

degrees = st.one_of(st.integers(1, 60).map(float), st.floats(0.6, 400))


@given(st.floats(-60, 60), degrees)
def test_t_equals_scipy(t, freedom):
    expected = 2 * scipy.special.stdtr(freedom, -abs(t))
    assert distributions.t_two_sided(t, freedom) == pytest.approx(expected, rel=1e-10, abs=1e-300)


@given(degrees, st.floats(0.01, 0.9999))
def test_the_t_quantile_equals_scipy(freedom, confidence):
    expected = scipy.special.stdtrit(freedom, 0.5 + confidence / 2)
    assert distributions.t_quantile(freedom, confidence) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("t, freedom, expected", [(0.0, 3.0, 1.0), (math.inf, 3.0, 0.0), (1.0, 1.0, 0.5)])
def test_t_at_its_ends_and_where_it_is_known(t, freedom, expected):
    assert distributions.t_two_sided(t, freedom) == pytest.approx(expected, abs=1e-15)


@given(st.floats(0, 300), st.integers(1, 80))
def test_chi_square_equals_scipy(value, freedom):
    expected = scipy.special.chdtrc(freedom, value)
    assert distributions.chi_square_tail(freedom, value) == pytest.approx(expected, rel=1e-9, abs=1e-13)


@given(st.integers(0, 1500).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_the_fair_coin_equals_scipy(case):
    k, n = case
    expected = scipy.stats.binom.cdf(k, n, 0.5)
    assert distributions.fair_coin_below(k, n) == pytest.approx(expected, rel=1e-9, abs=1e-300)


@given(st.floats(-37, 37))
def test_the_normal_equals_scipy(z):
    assert distributions.normal_below(z) == pytest.approx(scipy.special.ndtr(z), rel=1e-12, abs=1e-300)


@given(st.floats(0.3, 200), st.floats(0.3, 200), st.floats(0, 1))
def test_the_incomplete_beta_function_equals_scipy(a, b, x):
    assert distributions.incomplete_beta(a, b, x) == pytest.approx(scipy.special.betainc(a, b, x), rel=1e-8, abs=1e-12)
