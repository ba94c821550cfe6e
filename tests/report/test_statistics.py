import json
import math
from pathlib import Path

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st
from statsmodels.stats.contingency_tables import mcnemar
from statsmodels.stats.multitest import multipletests

from lossbench.report import statistics

GOLDEN = json.loads((Path(__file__).parents[1] / "golden/eval/report_stats.json").read_text())
finite = st.floats(-1e3, 1e3).map(lambda value: round(value, 6))
p_values = st.lists(st.floats(0, 1), max_size=12)


@pytest.mark.parametrize("case", GOLDEN["holm"])
def test_holm_equals_the_golden_values(case):
    assert statistics.holm(case["p"]) == pytest.approx(case["adjusted"], abs=1e-12)


@settings(max_examples=15)  # statsmodels takes 0.15 s a call
@given(p_values.filter(bool))
def test_holm_equals_statsmodels(p):
    expected = multipletests(p, method="holm")[1]
    assert statistics.holm(p) == pytest.approx(list(expected), rel=1e-12, abs=1e-300)


@given(p_values, st.randoms())
def test_holm_keeps_the_order_of_its_input(p, random):
    order = list(range(len(p)))
    random.shuffle(order)
    adjusted = statistics.holm(p)
    assert statistics.holm([p[i] for i in order]) == pytest.approx([adjusted[i] for i in order])
    assert all(after >= before for before, after in zip(p, adjusted, strict=True))


@pytest.mark.parametrize("value", [math.nan, -0.1, 1.1])
def test_holm_refuses_what_is_no_p_value(value):
    with pytest.raises(ValueError, match="no p value"):
        statistics.holm([0.5, value])


def test_holm_of_nothing_is_nothing():
    assert statistics.holm([]) == []


@given(st.lists(finite, min_size=2, max_size=12), st.floats(0.5, 0.999))
def test_t_interval_equals_scipy(values, confidence):
    error = scipy.stats.sem(values)
    if error < 1e-9:
        return
    low, high = scipy.stats.t.interval(confidence, len(values) - 1, loc=np.mean(values), scale=error)
    assert statistics.t_interval(values, confidence) == pytest.approx((low, high), rel=1e-9, abs=1e-9)


def test_one_value_has_no_interval():
    assert all(math.isnan(bound) for bound in statistics.t_interval([0.4]))
    assert math.isnan(statistics.standard_deviation([0.4]))


def test_equal_values_have_an_interval_of_no_width():
    assert statistics.t_interval([2.0, 2.0, 2.0]) == (2.0, 2.0)
    assert statistics.standard_deviation([0.4, 0.4, 0.4]) == 0.0


@pytest.mark.parametrize("values, confidence", [([], 0.95), ([1.0, 2.0], 0.0), ([1.0, 2.0], 1.0)])
def test_t_interval_refuses_nonsense(values, confidence):
    with pytest.raises(ValueError, match=r"mean of no values|between 0 and 1"):
        statistics.t_interval(values, confidence)


@given(st.lists(finite, min_size=2, max_size=12))
def test_mean_and_deviation_equal_numpy(values):
    assert statistics.mean(values) == pytest.approx(np.mean(values), abs=1e-9)
    assert statistics.standard_deviation(values) == pytest.approx(np.std(values, ddof=1), abs=1e-9)


@pytest.mark.parametrize("case", GOLDEN["paired_em"])
def test_mcnemar_equals_the_golden_values(case):
    _, only_a, only_b, _ = case["table_both_a_only_b_only_neither"]
    assert statistics.mcnemar_exact(only_a, only_b) == pytest.approx(case["exact_p"], abs=1e-9)


@given(st.integers(0, 400), st.integers(0, 400))
def test_mcnemar_equals_statsmodels(b, c):
    if b + c == 0:
        return
    expected = mcnemar([[7, b], [c, 9]], exact=True).pvalue
    assert statistics.mcnemar_exact(b, c) == pytest.approx(min(1.0, expected), rel=1e-9)
    assert statistics.mcnemar_exact(b, c) == statistics.mcnemar_exact(c, b)


def test_no_discordant_pair_is_no_evidence():
    assert statistics.mcnemar_exact(0, 0) == 1.0


@pytest.mark.parametrize("b, c", [(-1, 2), (1.5, 2)])
def test_mcnemar_refuses_what_is_no_count(b, c):
    with pytest.raises(ValueError, match="whole number"):
        statistics.mcnemar_exact(b, c)


@pytest.mark.parametrize("case", GOLDEN["pass_at_k"])
def test_pass_at_k_equals_the_golden_values(case):
    assert statistics.pass_at_k(case["n"], case["c"], case["k"]) == pytest.approx(case["value"], abs=1e-9)


@given(st.data())
def test_pass_at_k_equals_the_share_of_subsets_with_a_right_answer(data):
    n = data.draw(st.integers(1, 60))
    c, k = data.draw(st.integers(0, n)), data.draw(st.integers(1, n))
    expected = 1 - math.comb(n - c, k) / math.comb(n, k)
    assert statistics.pass_at_k(n, c, k) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("n, c, k", [(5, 6, 1), (5, -1, 1), (5, 2, 6), (5, 2, 0), (0, 0, 1)])
def test_pass_at_k_refuses_counts_that_do_not_fit(n, c, k):
    with pytest.raises(ValueError, match="must lie between"):
        statistics.pass_at_k(n, c, k)


@given(st.lists(st.tuples(finite, finite), min_size=3, max_size=10))
def test_common_seeds_are_paired(pairs):
    a, b = dict(enumerate(x for x, _ in pairs)), dict(enumerate(y for _, y in pairs))
    found = statistics.difference(a, b)
    deltas = np.subtract(list(a.values()), list(b.values()))
    assert found.estimate == pytest.approx(deltas.mean(), abs=1e-9)
    if np.std(deltas) < 1e-6:
        return
    expected = scipy.stats.ttest_rel(list(a.values()), list(b.values()))
    interval = expected.confidence_interval(0.95)
    assert (found.method, found.n) == ("paired t", len(pairs))
    assert found.p == pytest.approx(expected.pvalue, rel=1e-6, abs=1e-12)
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high), rel=1e-6, abs=1e-6)


@given(st.lists(finite, min_size=2, max_size=8), st.lists(finite, min_size=2, max_size=8))
def test_foreign_seeds_get_welchs_test(left, right):
    if min(np.std(left), np.std(right)) < 1e-3:
        return
    a, b = dict(enumerate(left)), {100 + seed: value for seed, value in enumerate(right)}
    expected = scipy.stats.ttest_ind(left, right, equal_var=False)
    interval = expected.confidence_interval(0.95)
    found = statistics.difference(a, b)
    assert (found.method, found.n) == ("Welch t", (len(left), len(right)))
    assert found.p == pytest.approx(expected.pvalue, rel=1e-6, abs=1e-12)
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high), rel=1e-6, abs=1e-6)


def test_two_common_seeds_are_too_few_to_pair():
    assert statistics.difference({0: 1.0, 1: 2.0}, {0: 1.5, 1: 2.1}).method == "Welch t"


@pytest.mark.parametrize("a, b", [({0: 1.0}, {0: 2.0, 1: 3.0}), ({0: 1.0, 1: 2.0}, {5: 4.0})])
def test_one_seed_gives_a_difference_without_a_test(a, b):
    found = statistics.difference(a, b)
    assert (found.low, found.high, found.p) == (None, None, None)
    assert "one seed" in found.note


def test_equal_differences_have_no_p_value():
    found = statistics.difference({0: 1.5, 1: 2.5, 2: 3.5}, {0: 1.0, 1: 2.0, 2: 3.0})
    assert (found.estimate, found.p, found.note) == (0.5, None, "no variance between seeds")


def test_nothing_has_no_difference():
    assert statistics.difference({}, {0: 1.0}) is None


@pytest.mark.parametrize("n, effect", [(3, 2.48), (5, 1.24), (10, 0.72)])
def test_smallest_detectable_effect_is_the_edge_of_the_paired_test(n, effect):
    assert statistics.smallest_detectable(n) == pytest.approx(effect, abs=0.005)
