import math

import numpy as np
import pytest
import scikit_posthocs
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from lossbench.report import assemble, ranks
from tests.report.factory import write_run

NOW = 1_800_000_000.0
grids = st.integers(3, 6).flatmap(
    lambda k: st.lists(st.lists(st.integers(0, 5), min_size=k, max_size=k), min_size=2, max_size=8)
)


@given(st.lists(st.integers(0, 6), min_size=1, max_size=9))
def test_ranks_equal_scipy(values):
    assert ranks.rank(values) == list(scipy.stats.rankdata(values))


@given(grids)
def test_friedman_equals_scipy(grid):
    chi_square, p = ranks.friedman([ranks.rank(row) for row in grid])
    if all(len(set(row)) == 1 for row in grid):
        assert (chi_square, p) == (None, None)
        return
    expected = scipy.stats.friedmanchisquare(*np.transpose(grid))
    assert chi_square == pytest.approx(expected.statistic, abs=1e-9)
    assert p == pytest.approx(expected.pvalue, abs=1e-9)


@pytest.mark.parametrize("count", [2, 3, 8, 40])
def test_the_studentized_range_equals_scipy(count):
    expected = scipy.stats.studentized_range.ppf(0.95, count, np.inf)
    assert ranks.studentized_range_quantile(0.95, count) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("columns, expected", [(3, 6.06), (12, 3.03)])
def test_the_critical_difference_of_eight_losses(columns, expected):
    assert ranks.nemenyi_critical_difference(8, columns) == pytest.approx(expected, abs=0.005)


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 1000))
def test_two_losses_are_told_apart_where_scikit_posthocs_tells_them_apart(seed):
    values = np.random.default_rng(seed).normal(size=(9, 5)) + np.arange(5) * 0.6
    mean_ranks = np.mean([ranks.rank(list(row)) for row in values], axis=0)
    p = scikit_posthocs.posthoc_nemenyi_friedman(values).to_numpy()
    critical = ranks.nemenyi_critical_difference(5, 9)
    for i in range(5):
        for j in range(i):
            assert (abs(mean_ranks[i] - mean_ranks[j]) > critical) == (p[i, j] < 0.05)


def test_groups_are_maximal():
    assert ranks.within([1.0, 1.5, 2.6, 4.0], 1.2) == ((0, 1), (1, 2))
    assert ranks.within([1.0, 1.1, 1.2], 1.0) == ((0, 2),)
    assert ranks.within([1.0, 3.0], 1.0) == ()


def grid(root, settings_, losses=("cross_entropy", "focal", "emo"), seeds=(0, 1, 2)):
    for column in range(settings_):
        for place, loss in enumerate(losses):
            for seed in seeds:
                em = 0.3 + 0.1 * place + 0.01 * seed + 0.02 * column
                write_run(root, loss, seed, metrics={"test/em": em, "test/ppl": math.exp(em)}, dataset=f"set{column}")
    return assemble([root], now=NOW)


def test_one_column_gives_no_ranking(tmp_path):
    assert ranks.rankings(grid(tmp_path, 1).tables) == []


def test_few_columns_give_ranks_but_no_critical_difference(tmp_path):
    em, ppl = ranks.rankings(grid(tmp_path, 3).tables)
    assert [(loss.label, loss.mean_rank, loss.wins) for loss in em.losses] == [
        ("emo", 1.0, 3), ("focal", 2.0, 0), ("cross_entropy", 3.0, 0)]  # fmt: skip
    assert [loss.label for loss in ppl.losses] == ["cross_entropy", "focal", "emo"]
    assert em.critical_difference is None and em.p == pytest.approx(scipy.stats.chi2.sf(6.0, 2))
    assert [loss.iqm for loss in em.losses] == pytest.approx([0.2, 0.1, None])


@pytest.mark.parametrize("sizes", [(12,), (5, 5, 5), (3, 4, 1), (2, 10)])
def test_the_interval_of_the_interquartile_mean_equals_scipys_stratified_bootstrap(sizes, monkeypatch):
    """Several samples that are resampled each on its own, and then trimmed together, as rliable does."""
    monkeypatch.setattr(ranks, "RESAMPLES", 20_000)
    random = np.random.default_rng(sum(sizes))
    strata = [random.normal(place, 1 + place, size) for place, size in enumerate(sizes)]

    def trimmed(*parts, axis):
        return scipy.stats.trim_mean(np.concatenate(parts, axis=axis), 0.25, axis=axis)

    expected = [trimmed(*(random.choice(part, (20_000, len(part))) for part in strata), axis=1)]
    if min(sizes) > 1:  # scipy refuses a sample of one value, whose resamples are all itself
        found = scipy.stats.bootstrap(
            strata, trimmed, method="percentile", n_resamples=20_000, rng=np.random.default_rng(1), vectorized=True
        )
        expected.append(found.bootstrap_distribution)
    spread = np.std(expected[0])
    for distribution in expected:
        low, high = np.percentile(distribution, [2.5, 97.5])
        assert ranks.iqm_interval(strata, seed=7) == pytest.approx((low, high), abs=0.1 * spread)


def test_each_resample_is_trimmed_as_rliable_trims_it(monkeypatch):
    """One resample: what numpy makes of the very values that were drawn."""
    strata = [[0.3, 0.1, 0.9], [5.0, 4.0], [2.0, 2.5, 7.0, 1.0]]
    monkeypatch.setattr(ranks, "RESAMPLES", 1)
    for seed in range(20):
        counts = ranks._draws(tuple(map(len, strata)), seed)[:, 0].astype(int)
        drawn = np.repeat(np.concatenate(strata), counts)
        assert [sum(part) for part in np.split(counts, [3, 5])] == [3, 2, 4]
        expected = scipy.stats.trim_mean(drawn, 0.25)
        assert ranks.iqm_interval(strata, seed) == pytest.approx((expected, expected))
    ranks._draws.cache_clear()


def test_one_seed_a_setting_has_no_interval_of_the_interquartile_mean(tmp_path):
    em, _ = ranks.rankings(grid(tmp_path, 3, seeds=(0,)).tables)
    assert ranks.iqm_interval([[1.0], [2.0]]) == (None, None)
    assert {(loss.iqm_low, loss.iqm_high) for loss in em.losses} == {(None, None)}


def test_five_columns_give_a_critical_difference(tmp_path):
    em, _ = ranks.rankings(grid(tmp_path, 5).tables)
    assert em.critical_difference == pytest.approx(ranks.nemenyi_critical_difference(3, 5))
    assert em.groups == ((0, 1), (1, 2))


def test_a_loss_that_lacks_a_column_is_left_out_by_name(tmp_path):
    grid(tmp_path, 2)
    write_run(tmp_path, "lovasz", 0, metrics={"test/em": 0.9}, dataset="set0")
    em = next(r for r in ranks.rankings(assemble([tmp_path], now=NOW).tables) if r.metric.name == "test/em")
    assert em.left_out == ("lovasz",) and len(em.losses) == 3
