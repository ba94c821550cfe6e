from lossbench.report import assemble
from lossbench.report.samples import _natural, read_samples
from tests.report.conftest import HOSTILE
from tests.report.factory import PROMPTS, answers, write_run

NOW = 1_800_000_000.0


def test_every_loss_answers_the_same_prompts(report):
    samples = report.samples[0]
    assert len(samples) == 5
    for sample in samples:
        assert [answer.label for answer in sample.answers] == ["cross_entropy", HOSTILE, "focal", "lovasz"]
        assert sample.prompt == PROMPTS[int(sample.example.removeprefix("test-"))]
    assert [answer.correct for answer in samples[0].answers] == [True, True, True, True]


def test_the_choice_does_not_depend_on_the_answers(tmp_path):
    for folder, quality in (("a", 0), ("b", 6)):
        write_run(tmp_path / folder, "focal", 0, metrics={"test/em": 0.5}, examples=answers(quality))
    chosen = [[sample.example for sample in assemble([tmp_path / folder], now=NOW).samples[0]] for folder in ("a", "b")]
    assert chosen[0] == chosen[1]


def test_losses_without_common_examples_show_none(tmp_path):
    write_run(tmp_path, "focal", 0, metrics={"test/em": 0.5}, examples=answers(1)[:3])
    write_run(tmp_path, "emo", 0, metrics={"test/em": 0.5}, examples=answers(1)[3:])
    assert assemble([tmp_path], now=NOW).samples == ((),)


def test_validation_rows_and_rows_without_text_are_passed_over(tmp_path):
    rows = [{**row, "split": "val"} for row in answers(1)[:3]] + [{**row, "completion": None} for row in answers(1)[3:]]
    write_run(tmp_path, "focal", 0, metrics={"test/em": 0.5}, examples=rows)
    assert read_samples(assemble([tmp_path], now=NOW).tables[0])[0] == []


def test_ids_are_ordered_as_numbers():
    assert sorted(["test-10", "test-2", "b", "test-2a"], key=_natural) == ["b", "test-2", "test-2a", "test-10"]
