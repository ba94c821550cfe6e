"""Evaluations made after a run are metrics of it under names of their own, made alike, and never its own numbers."""

import json

import pytest

from lossbench.evaluation import stored
from lossbench.report import Choices, assemble, build
from lossbench.report.metrics import choose_columns, describe
from lossbench.report.records import State
from tests.report.factory import write_run

NOW = 1_800_000_000.0


def evaluate(run, metrics, /, dataset="gsm8k", created="2026-11-30T18:00:00+00:00", checkpoint="abc", **facts):
    """What `lossbench evaluate` writes: `reevaluate._facts`, shortened."""
    evaluation = {"split": "test", "limit": None, "batch_size": 16, **facts.pop("evaluation", {})}
    known = {
        "model": {"weights": run.name}, "checkpoint": checkpoint, "dataset": {"name": dataset},
        "evaluation": evaluation, "sample_seed": None, "temperature": 1.0, "versions": {"torch": "2.13.0"}, **facts,
    }  # fmt: skip
    stored.write(stored.folder_of(run, stored.fingerprint(known)), known, metrics, [], created=created)


def cells(report, loss):
    (table,) = report.tables
    (row,) = [row for row in table.rows if row.label == loss]
    return {cell.metric.name: cell for cell in row.cells}


def test_they_are_columns_by_dataset_beside_the_runs_own(tmp_path):
    for loss, own, later in (("cross_entropy", 0.5, 0.20), ("focal", 0.6, 0.30)):
        for seed in range(3):
            run = write_run(tmp_path / "s", loss, seed, metrics={"test/em": own + seed / 100})
            evaluate(run, {"test/em": later + seed**2 / 100, "test/ppl": 2.0, "test/steps/dice": 0.1})
    report = build([tmp_path], tmp_path / "out", ["html", "csv", "json"], now=NOW)
    found = cells(report, "focal")
    assert list(found) == ["test/em", "evaluated/gsm8k/test/em", "evaluated/gsm8k/test/ppl"]
    assert found["test/em"].mean == pytest.approx(0.61)
    later = found["evaluated/gsm8k/test/em"]
    assert later.mean == pytest.approx(0.30 + 5 / 300) and later.comparison.difference.estimate == pytest.approx(0.1)
    page = (tmp_path / "out" / "report.html").read_text()
    assert "Exact match [gsm8k] (%)" in page and "evaluated after the run, on gsm8k" in page
    runs = json.loads((tmp_path / "out" / "report.json").read_text())["runs"]
    assert runs[0]["metrics"]["evaluated/gsm8k/test/steps/dice"] == 0.1
    assert describe("evaluated/gsm8k/test/em").label == "Exact match [gsm8k]"


def test_a_run_that_was_not_evaluated_again_is_whole_and_its_cell_says_so(tmp_path):
    evaluate(write_run(tmp_path, "focal", 0, metrics={"test/em": 0.5}), {"test/em": 0.4})
    write_run(tmp_path, "focal", 1, metrics={"test/em": 0.6})
    report = assemble([tmp_path], now=NOW)
    assert {record.state for record in report.records} == {State.FINISHED}
    assert cells(report, "focal")["evaluated/gsm8k/test/em"].absence == "1 not recorded"


def test_an_evaluation_of_the_runs_own_dataset_is_not_its_own_number(tmp_path):
    evaluate(write_run(tmp_path, "focal", 0, metrics={"test/em": 0.5}), {"test/em": 0.1}, dataset="arithmetic")
    found = cells(assemble([tmp_path], now=NOW), "focal")
    assert (found["test/em"].mean, found["evaluated/arithmetic/test/em"].mean) == (0.5, 0.1)


def test_names_say_split_limit_and_sampling(tmp_path):
    run = write_run(tmp_path, "focal", 0, metrics={"test/em": 0.5})
    evaluate(run, {"val/em": 0.1}, evaluation={"split": "validation"})
    evaluate(run, {"test/em": 0.2}, evaluation={"limit": 200})
    evaluate(run, {"test/em": 0.3}, sample_seed=7, temperature=0.5)
    evaluate(run, {"harness/arc_easy/acc,none": 0.4}, harness=["arc_easy"])
    evaluate(run, {"test/mauve[tiny,joint]": 0.6}, joint=["1", "2"], run="1")
    (record,) = assemble([tmp_path], now=NOW).records
    assert {name: value for name, value in record.metrics.items() if name != "test/em"} == {
        "evaluated/gsm8k/val/em": 0.1,
        "evaluated/gsm8k+limit=200/test/em": 0.2,
        "evaluated/gsm8k+sample_seed=7+temperature=0.5/test/em": 0.3,
        "evaluated/lm-eval/harness/arc_easy/acc,none": 0.4,
        "evaluated/joint/test/mauve[tiny,joint]": 0.6,
    }
    labels = {metric.label for metric in choose_columns(record.metrics)}
    assert labels == {
        "Exact match", "Validation exact match [gsm8k]", "Exact match [gsm8k, limit=200]", "MAUVE [tiny,joint]",
        "Exact match [gsm8k, sample_seed=7, temperature=0.5]", "lm-eval arc_easy acc,none",
    }  # fmt: skip


def test_evaluations_that_were_made_in_another_way_have_another_name(tmp_path):
    """Two seeds were evaluated with 64 new tokens, one of them with 128 as well: only equals are averaged."""
    for seed in range(2):
        run = write_run(tmp_path, "focal", seed, metrics={"test/em": 0.5})
        evaluate(run, {"test/em": 0.2 + seed / 10}, max_new_tokens=64)
    evaluate(run, {"test/em": 0.9}, max_new_tokens=128, created="2026-12-01T18:00:00+00:00")
    found = cells(assemble([tmp_path], now=NOW), "focal")
    assert found["evaluated/gsm8k/test/em"].values == ((0, 0.2), (1, pytest.approx(0.3)))
    assert found["evaluated/gsm8k#2/test/em"].values == ((1, 0.9),)


def test_of_two_alike_the_newer_one_counts_and_it_is_said(tmp_path):
    run = write_run(tmp_path, "focal", 0, metrics={"test/em": 0.5})
    evaluate(run, {"test/em": 0.2}, created="2026-12-02T00:00:00+00:00", checkpoint="later")
    evaluate(run, {"test/em": 0.9}, created="2026-12-01T00:00:00+00:00", checkpoint="first")
    report = assemble([tmp_path], now=NOW)
    assert cells(report, "focal")["evaluated/gsm8k/test/em"].mean == 0.2
    assert "of equal names the newer one's numbers are used" in " ".join(sentence for _, sentence in report.problems)


def test_a_model_that_was_not_trained_is_no_evaluation_of_itself(tmp_path):
    run = write_run(tmp_path, "untrained", 0, metrics={"test/em": 0.1, "time/eval_s": 3.0})
    evaluate(run, {"test/em": 0.1}, checkpoint=None)
    assert set(cells(assemble([tmp_path], now=NOW), "untrained")) == {"test/em"}


@pytest.mark.parametrize("content", ["", "{", "[]", '{"facts": 1, "metrics": {}}', '{"facts": {}, "metrics": [1]}'])
def test_damage_is_named_and_the_run_is_used(tmp_path, content):
    run = write_run(tmp_path, "focal", 0, metrics={"test/em": 0.5})
    (run / "evaluations" / "1234").mkdir(parents=True)
    (run / "evaluations" / "1234" / "evaluation.json").write_text(content)
    (run / "evaluations" / "empty").mkdir()
    (run / "evaluations" / ".aside.tmp").mkdir()
    (record,) = assemble([tmp_path], now=NOW).records
    assert record.state is State.FINISHED and record.metrics == {"test/em": 0.5}
    assert [problem.startswith("evaluations/1234: ") for problem in record.problems] == [True]


def test_an_impossible_value_is_named_and_spoils_nothing_else(tmp_path):
    run = write_run(tmp_path, "focal", 0, metrics={"test/em": 0.5})
    evaluate(run, {"test/em": 1.5}, dataset="<b>|x/y")
    (record,) = assemble([tmp_path], now=NOW).records
    assert record.state is State.FINISHED
    assert "evaluated/<b>|x-y/test/em is 1.5" in " ".join(record.problems)


def test_a_new_evaluation_makes_the_report_again(tmp_path):
    run = write_run(tmp_path / "runs", "focal", 0, metrics={"test/em": 0.5})
    fresh = [build([tmp_path / "runs"], tmp_path / "out", ["json"], Choices(), NOW, cache=True).is_fresh]
    evaluate(run, {"test/em": 0.2})
    fresh += [
        build([tmp_path / "runs"], tmp_path / "out", ["json"], Choices(), NOW, cache=True).is_fresh for _ in range(2)
    ]
    assert fresh == [True, True, False]
