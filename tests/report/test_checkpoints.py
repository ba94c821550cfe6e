import json
from pathlib import Path

import numpy as np
import pytest
import scipy.stats
from statsmodels.stats.contingency_tables import mcnemar

from lossbench.report import assemble, checkpoints, statistics
from tests.report.factory import write_run

NOW = 1_800_000_000.0
GOLDEN = json.loads((Path(__file__).parent / "golden.json").read_text())


def examples(random, n=60, share=0.5, first=0, **columns):
    return [
        {
            "id": f"test-{first + i}", "split": "test", "prompt": "p", "completion": "c", "gold": "1",
            "em": bool(random.random() < share), "nll_sum": float(random.gamma(2.0)), "n_tokens": 5 + i % 7, **columns,
        }
        for i in range(n)
    ]  # fmt: skip


def pairs_of(root):
    table = assemble([root], now=NOW).tables[0]
    return checkpoints.compare_checkpoints(table, checkpoints.scores_of(table))


def test_the_percentile_interval_equals_the_golden_values():
    case = GOLDEN["paired_bootstrap_fixed_indices"]
    means = np.array(case["diff"], dtype=float)[np.array(case["indices"])].mean(axis=1)
    assert checkpoints.percentile_interval(means) == pytest.approx(case["percentile95"], abs=1e-9)


@pytest.mark.parametrize("case", GOLDEN["iqm"])
def test_the_interquartile_mean_equals_the_golden_values(case):
    values = np.ravel(case["scores_runs_by_tasks"])
    assert statistics.interquartile_mean(list(values)) == pytest.approx(case["iqm"], abs=1e-9)
    assert statistics.interquartile_mean(list(values)) == pytest.approx(scipy.stats.trim_mean(values, 0.25))


def test_bootstrap_and_sign_flip_agree_with_scipy():
    d = np.random.default_rng(3).normal(0.12, 0.5, 80)
    (found,) = checkpoints.paired_bootstraps([d], [None])
    expected = scipy.stats.bootstrap((d,), np.mean, method="percentile", n_resamples=9999, rng=1).confidence_interval
    flips = scipy.stats.permutation_test(
        (d, np.zeros_like(d)), lambda a, b: (a - b).mean(), permutation_type="samples", n_resamples=9999, rng=1
    )
    assert found.estimate == pytest.approx(d.mean())
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), abs=0.02)
    assert found.p == pytest.approx(flips.pvalue, abs=0.02)


def test_an_interval_covers_as_often_as_it_says():
    random = np.random.default_rng(0)
    data = [random.normal(0.0, 1.0, 100) for _ in range(400)]
    found = checkpoints.paired_bootstraps(data, [None] * 400)
    assert 0.90 <= np.mean([one.low <= 0.0 <= one.high for one in found]) <= 0.98
    assert np.mean([one.p < 0.05 for one in found]) == pytest.approx(0.05, abs=0.04)


def test_a_mean_over_tokens_is_total_over_total():
    d, tokens = np.array([1.0, 2.0, -3.0, 4.0]), np.array([1.0, 5.0, 2.0, 2.0])
    (found,) = checkpoints.paired_bootstraps([d], [tokens])
    assert found.estimate == pytest.approx(0.4)


def test_pairs_are_seed_by_seed_against_the_baseline(tmp_path):
    random = np.random.default_rng(0)
    rows = {}
    for loss, share in (("cross_entropy", 0.4), ("focal", 0.7)):
        for seed in (0, 1):
            rows[loss, seed] = examples(random, share=share)
            write_run(tmp_path, loss, seed, metrics={"test/em": share}, examples=rows[loss, seed])
    found = pairs_of(tmp_path)
    assert [(pair.label, pair.baseline, pair.seed, pair.common) for pair in found] == [
        ("focal", "cross_entropy", 0, 60), ("focal", "cross_entropy", 1, 60)]  # fmt: skip
    for pair in found:
        ours, theirs = rows["focal", pair.seed], rows["cross_entropy", pair.seed]
        only = [sum(a["em"] > b["em"] for a, b in zip(*both, strict=True)) for both in ((ours, theirs), (theirs, ours))]
        assert [pair.only_loss, pair.only_baseline] == only
        assert pair.mcnemar == pytest.approx(mcnemar([[0, only[0]], [only[1], 0]], exact=True).pvalue)
        nll = sum(a["nll_sum"] - b["nll_sum"] for a, b in zip(ours, theirs, strict=True))
        assert pair.nll.estimate == pytest.approx(nll / sum(row["n_tokens"] for row in ours))
        assert pair.em.low <= pair.em.estimate <= pair.em.high and 0 < pair.em.p <= 1


def test_other_example_ids_are_not_compared_and_counted(tmp_path):
    random = np.random.default_rng(0)
    write_run(tmp_path, "cross_entropy", 0, metrics={"test/em": 0.5}, examples=examples(random))
    write_run(tmp_path, "focal", 0, metrics={"test/em": 0.5}, examples=examples(random, first=20))
    (pair,) = pairs_of(tmp_path)
    assert (pair.mcnemar, pair.em, pair.nll, pair.common, pair.total) == (None, None, None, 40, 80)
    assert "40 of 80 in common" in pair.note


def test_the_order_of_the_rows_changes_nothing(tmp_path):
    random = np.random.default_rng(0)
    base, ours = examples(random), examples(random)
    write_run(tmp_path / "a", "cross_entropy", 0, metrics={"test/em": 0.5}, examples=base)
    write_run(tmp_path / "a", "focal", 0, metrics={"test/em": 0.5}, examples=ours)
    write_run(tmp_path / "b", "cross_entropy", 0, metrics={"test/em": 0.5}, examples=base[::-1])
    write_run(tmp_path / "b", "focal", 0, metrics={"test/em": 0.5}, examples=ours)
    assert pairs_of(tmp_path / "a") == pairs_of(tmp_path / "b")


def test_confidence_of_answers_and_of_choices_is_read(tmp_path):
    random = np.random.default_rng(0)
    folder = write_run(tmp_path, "focal", 0, metrics={"test/em": 0.5}, examples=examples(random, mean_logprob=-0.5))
    (run,) = assemble([folder], now=NOW).records
    found = checkpoints.read_scores(run)
    assert found.of == "generated answer" and found.confidence == pytest.approx(np.full(60, np.exp(-0.5)))
    rows = examples(random, choice_logprobs=[-1.0, -2.0, -3.0], gold_choice=1)
    for row in rows:
        del row["em"]
    folder = write_run(tmp_path, "focal", 1, metrics={"test/em": 0.5}, examples=rows)
    (run,) = assemble([folder], now=NOW).records
    found = checkpoints.read_scores(run)
    weights = np.exp([-1.0, -2.0, -3.0])
    assert found.of == "choice" and found.confidence == pytest.approx(np.full(60, weights[0] / weights.sum()))
    assert not found.correct.any()


@pytest.mark.parametrize("damage", ["cut", "text", "empty"])
def test_damaged_examples_are_no_scores_and_no_traceback(tmp_path, damage):
    folder = write_run(tmp_path, "focal", 0, metrics={"test/em": 0.5}, examples=examples(np.random.default_rng(0)))
    file = folder / "examples.parquet"
    file.write_bytes({"cut": file.read_bytes()[:-30], "text": b"no parquet", "empty": b""}[damage])
    report = assemble([folder], now=NOW)
    assert checkpoints.read_scores(report.records[0]) is None
    assert any("examples.parquet" in sentence for _, sentence in report.problems)


def test_repeated_or_absent_ids_are_no_scores(tmp_path):
    rows = examples(np.random.default_rng(0))
    for name, changed in (("a", [*rows, rows[0]]), ("b", [{**row, "id": None} for row in rows])):
        folder = write_run(tmp_path / name, "focal", 0, metrics={"test/em": 0.5}, examples=changed)
        assert checkpoints.read_scores(assemble([folder], now=NOW).records[0]) is None
