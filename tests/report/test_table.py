import math

import numpy as np
import pytest
import scipy.stats
from statsmodels.stats.multitest import multipletests

from lossbench.errors import ConfigError
from lossbench.report import Choices, assemble
from tests.report.conftest import EM, HOSTILE
from tests.report.factory import write_plan, write_run

NOW = 1_800_000_000.0


def cell(report, loss, metric):
    (table,) = report.tables
    (row,) = [row for row in table.rows if row.label == loss]
    (found,) = [cell for cell in row.cells if cell.metric.name == metric]
    return found


def report_of(root, values, metric="test/em", **options):
    for loss, seeds in values.items():
        for seed, value in seeds.items():
            write_run(root, loss, seed, metrics={metric: value})
    return assemble([root], Choices(**options), now=NOW)


def test_mean_deviation_and_interval_equal_numpy_and_scipy(report):
    for loss in ("cross_entropy", "focal"):
        values = list(EM[loss].values())
        found = cell(report, loss, "test/em")
        assert found.mean == pytest.approx(np.mean(values), abs=1e-12)
        assert found.sd == pytest.approx(np.std(values, ddof=1), abs=1e-12)
        interval = scipy.stats.t.interval(0.95, 2, loc=np.mean(values), scale=scipy.stats.sem(values))
        assert (found.low, found.high) == pytest.approx(interval, abs=1e-12)


def test_perplexity_is_averaged_on_the_log_scale(report):
    logs = 1 - np.array(list(EM["focal"].values()))
    found = cell(report, "focal", "test/ppl")
    assert found.mean == pytest.approx(np.exp(logs.mean()), abs=1e-12)
    assert found.sd == pytest.approx(np.std(np.exp(logs), ddof=1), abs=1e-12)
    interval = scipy.stats.t.interval(0.95, 2, loc=logs.mean(), scale=scipy.stats.sem(logs))
    assert (found.low, found.high) == pytest.approx(np.exp(interval), abs=1e-12)


def test_differences_are_paired_and_corrected_within_the_column(report):
    base = list(EM["cross_entropy"].values())
    paired = scipy.stats.ttest_rel(list(EM["focal"].values()), base).pvalue
    welch = scipy.stats.ttest_ind(list(EM[HOSTILE].values()), base, equal_var=False).pvalue
    expected = dict(zip(["focal", HOSTILE], multipletests([paired, welch], method="holm")[1], strict=True))
    for loss, p in expected.items():
        assert cell(report, loss, "test/em").comparison.p_holm == pytest.approx(p, rel=1e-9)
    lone = cell(report, "lovasz", "test/em").comparison
    assert (lone.difference.p, lone.p_holm, lone.verdict) == (None, None, None)
    assert lone.difference.estimate == pytest.approx(0.61 - 0.42)


def test_a_difference_of_perplexities_is_a_ratio(report):
    found = cell(report, "focal", "test/ppl").comparison.difference
    deltas = np.array(list(EM["cross_entropy"].values())) - np.array(list(EM["focal"].values()))
    assert found.estimate == pytest.approx(np.exp(deltas.mean()), abs=1e-12)
    assert found.low < found.estimate < found.high < 1


def test_what_is_absent_is_named_and_expected(report):
    found = cell(report, "lovasz", "test/em")
    assert (found.n, found.expected, found.absence) == (1, 3, "1 failed, 1 missing")
    found = cell(report, HOSTILE, "val/nll")
    assert (found.n, found.absence) == (1, "1 crashed, 1 invalid")


def test_an_invalid_value_leaves_the_runs_other_metrics(report):
    assert cell(report, HOSTILE, "test/em").n == 2


def test_one_seed_has_neither_spread_nor_mark(report):
    found = cell(report, "lovasz", "test/em")
    assert (found.mean, found.sd, found.low, found.mark) == (0.61, None, None, None)


def test_best_and_second_go_to_losses_with_two_seeds(report):
    assert cell(report, "focal", "test/em").mark == "best"
    assert cell(report, "cross_entropy", "test/em").mark == "second"
    assert cell(report, "focal", "test/ppl").mark == "best"


def test_training_time_is_not_ranked(report):
    assert {cell(report, loss, "time/train_s").mark for loss in EM} == {None}


def test_equal_prints_share_the_mark(tmp_path):
    found = report_of(tmp_path, {"a": {0: 0.5, 1: 0.5001}, "b": {0: 0.5001, 1: 0.5002}, "c": {0: 0.3, 1: 0.4}})
    assert [cell(found, loss, "test/em").mark for loss in "abc"] == ["best", "best", None]


def test_ranks_and_relative_differences_equal_scipy_and_numpy(tmp_path):
    values = {
        "cross_entropy": [0.40, 0.42], "a": [0.50, 0.54], "b": [0.50, 0.54], "c": [0.10, 0.12], "d": [0.90],
    }  # fmt: skip
    found = report_of(tmp_path, {loss: dict(enumerate(v)) for loss, v in values.items()})
    eligible = ["cross_entropy", "a", "b", "c"]
    expected = scipy.stats.rankdata([-np.mean(values[loss]) for loss in eligible], method="min")
    assert [cell(found, loss, "test/em").rank for loss in eligible] == list(expected)
    assert cell(found, "d", "test/em").rank is None  # one seed
    relative = cell(found, "a", "test/em").comparison.relative
    assert relative == pytest.approx(np.mean(values["a"]) / np.mean(values["cross_entropy"]) - 1)


def test_a_relative_difference_of_perplexities_is_the_ratio_less_one_and_of_nothing_there_is_none(tmp_path):
    ppl = report_of(tmp_path / "a", {"cross_entropy": {0: 4.0, 1: 4.0}, "a": {0: 2.0, 1: 2.0}}, "test/ppl")
    assert cell(ppl, "a", "test/ppl").comparison.relative == pytest.approx(-0.5)
    em = report_of(tmp_path / "b", {"cross_entropy": {0: 0.0, 1: 0.0}, "a": {0: 0.2, 1: 0.3}})
    assert cell(em, "a", "test/em").comparison.relative is None


def test_the_seed_of_resampling_moves_resampled_intervals_alone(study):
    one, two, again = (assemble([study], Choices(seed=seed), now=NOW) for seed in (1, 2, 1))
    assert one.tables == two.tables
    assert one.pairs == again.pairs and one.pairs != two.pairs


def test_nothing_is_best_where_all_print_the_same(tmp_path):
    found = report_of(tmp_path, {"a": {0: 0.5, 1: 0.5}, "b": {0: 0.5, 1: 0.5}})
    assert [cell(found, loss, "test/em").mark for loss in "ab"] == [None, None]


def test_differences_without_variance_have_no_p_value(tmp_path):
    values = {"cross_entropy": {s: 0.25 for s in range(3)}, "b": {s: 0.5 for s in range(3)}}
    found = cell(report_of(tmp_path, values), "b", "test/em").comparison
    assert (found.difference.estimate, found.p_holm, found.difference.note) == (0.25, None, "no variance between seeds")


def test_a_clear_difference_has_a_verdict_in_the_direction_of_the_metric(tmp_path):
    values = {"cross_entropy": {s: 1.0 + s / 100 for s in range(4)}, "b": {s: 0.5 + s / 90 for s in range(4)}}
    assert cell(report_of(tmp_path / "nll", values, "val/nll"), "b", "val/nll").comparison.verdict == "better"
    values = {loss: {seed: value / 2 for seed, value in seeds.items()} for loss, seeds in values.items()}
    assert cell(report_of(tmp_path / "em", values, "test/em"), "b", "test/em").comparison.verdict == "worse"


def test_the_baseline_comes_first_then_names(report):
    assert [row.label for row in report.tables[0].rows] == ["cross_entropy", HOSTILE, "focal", "lovasz"]


def test_another_baseline_can_be_named(study):
    table = assemble([study], Choices(baseline="focal"), now=NOW).tables[0]
    assert (table.rows[0].label, table.baseline) == ("focal", "focal")


@pytest.mark.parametrize("chosen, expected", [(None, "focal"), ("emo", "emo")])
def test_the_plan_names_the_baseline_where_the_user_does_not(tmp_path, chosen, expected):
    losses = ["cross_entropy", "focal", "emo"]
    write_plan(tmp_path / "s", losses, [0], baseline="focal")
    for loss in losses:
        write_run(tmp_path / "s", loss, 0, metrics={"test/em": 0.5})
    (table,) = assemble([tmp_path], Choices(baseline=chosen), now=NOW).tables
    assert (table.baseline, table.rows[0].label) == (expected, expected)
    (table,) = assemble([tmp_path], Choices(where="loss!=focal"), now=NOW).tables
    assert table.baseline == "cross_entropy"  # the planned one is not among the runs that were chosen


def test_plans_that_disagree_or_name_no_loss_of_theirs_are_not_followed_and_it_is_said(tmp_path):
    for study, baseline in (("a", "focal"), ("b", "emo"), ("c", "nothing")):
        write_plan(tmp_path / study, ["cross_entropy", "focal", "emo"], [0], baseline=baseline)
    found = assemble([tmp_path], now=NOW)
    assert found.tables[0].baseline == "cross_entropy"
    said = " ".join(found.collection.problems)
    assert "different baselines (emo, focal)" in said and "c/sweep.json names 'nothing' as the baseline" in said


def test_an_unknown_baseline_names_the_nearest(study):
    with pytest.raises(ConfigError, match=r"'focall' is no loss.*Did you mean 'focal'") as error:
        assemble([study], Choices(baseline="focall"), now=NOW)
    assert error.value.exit_code == 2


def test_without_the_default_baseline_nothing_is_compared(tmp_path):
    found = report_of(tmp_path, {"a": {0: 0.5}, "b": {0: 0.4}})
    assert found.tables[0].baseline is None
    assert cell(found, "a", "test/em").comparison is None


def test_a_variant_is_compared_with_the_baseline_of_its_own_settings(tmp_path):
    for steps, offset in ((150, 0.0), (300, 0.2)):
        for loss, value in (("cross_entropy", 0.3), ("focal", 0.4)):
            for seed in range(3):
                write_run(
                    tmp_path, loss, seed, metrics={"test/em": value + offset + seed**2 / 100},
                    config={"trainer": {"max_steps": steps}}, created=f"2026-11-{steps // 10}T00:00:00",
                )  # fmt: skip
    found = assemble([tmp_path], now=NOW)
    assert cell(found, "focal#2", "test/em").comparison.baseline == "cross_entropy#2"
    assert cell(found, "focal", "test/em").comparison.baseline == "cross_entropy"
    assert cell(found, "focal#2", "test/em").comparison.difference.estimate == pytest.approx(0.1)


def test_models_and_datasets_have_tables_of_their_own(tmp_path):
    write_run(tmp_path, "focal", 0, metrics={"test/em": 0.5})
    write_run(tmp_path, "focal", 0, metrics={"test/ppl": 3.0}, dataset="pydocs")
    tables = assemble([tmp_path], now=NOW).tables
    assert [(t.title, [m.name for m in t.metrics]) for t in tables] == [
        ("tiny on arithmetic", ["test/em"]),
        ("tiny on pydocs", ["test/ppl"]),
    ]


def test_a_loss_without_any_run_keeps_its_row(tmp_path):
    write_plan(tmp_path, ["emo", "focal"], [0, 1])
    found = report_of(tmp_path, {"focal": {0: 0.5, 1: 0.6}})
    empty = cell(found, "emo", "test/em")
    assert (empty.mean, empty.n, empty.absence) == (None, 0, "2 missing")


def test_infinite_perplexity_is_invalid_and_named(tmp_path):
    found = cell(report_of(tmp_path, {"a": {0: math.inf, 1: 2.0}}, "test/ppl"), "a", "test/ppl")
    assert (found.values, found.absent) == (((1, 2.0),), {"invalid": 1})
