import pytest

from lossbench.data.sources import Row
from lossbench.errors import DataError
from tests.data.golden import load, source_task
from tests.real_data import real_data

DOC = load("prompts")["openbookqa"][0]["doc"]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"answerKey": "E"}, "the field 'answerKey' is 'E', but the choices are A, B, C, D"),
        ({"fact1": None}, "the field 'fact1' must be a text"),
        ({"choices": {"text": ["a", "b"], "label": ["A"]}}, "must hold the lists 'text' and 'label'"),
        ({"choices": {"text": ["a", ""], "label": ["A", "B"]}}, "every choice must be a text"),
    ],
)
def test_a_malformed_row_is_refused_with_its_place(changes: dict, sentence: str):
    with pytest.raises(DataError, match=rf"test\.jsonl, line 9: .*{sentence}"):
        source_task("dataset=openbookqa").example(Row("a", "test.jsonl, line 9", {**DOC, **changes}))


def test_the_harness_prompt_needs_no_fact():
    task = source_task("dataset=openbookqa", "dataset.prompt=lm_eval")
    assert task.example(Row("a", "line 1", {**DOC, "fact1": None})) == task.example(Row("a", "line 1", DOC))


def test_real_rows_without_a_fact_are_counted_when_skipped():
    path = real_data("datasets/openbookqa")
    task = source_task("dataset=openbookqa", f"dataset.path={path}", "dataset.skip_bad=true")
    assert len(task.examples("test")) == 500 - task.notes.counts["test_skipped"] == 483
    strict = source_task("dataset=openbookqa", f"dataset.path={path}")
    with pytest.raises(DataError, match=r"17 of 500 rows of test are malformed:\n .*test\.jsonl, line \d+"):
        strict.examples("test")
