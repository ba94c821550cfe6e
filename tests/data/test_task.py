import pytest

from lossbench import app
from lossbench.data import task as tasks
from lossbench.data.task import Task
from lossbench.data.tasks.pydocs import is_prose
from lossbench.errors import ConfigError


def build(*overrides: str) -> Task:
    return tasks.create(app.compose(*overrides).dataset)


def test_an_unknown_task_names_the_known_ones():
    with pytest.raises(ConfigError, match=r"dataset\.task='gsm9k' is no task\. Did you mean 'gsm8k'"):
        build("dataset.task=gsm9k")


def test_an_unknown_option_of_a_task_names_the_nearest():
    with pytest.raises(ConfigError, match=r"Unknown key dataset\.difficultie=.*'difficulty'"):
        build("+dataset.difficultie=hard")


def test_a_wrong_value_of_an_option_says_what_is_allowed():
    with pytest.raises(ConfigError, match=r"dataset\.difficulty='medium' cannot be used: .*'easy' or 'hard'"):
        build("dataset.difficulty=medium")


def test_arithmetic_has_as_many_examples_as_asked_and_all_have_answers():
    task = build("dataset.train_examples=30", "dataset.test_examples=7")
    assert len(task.examples("train")) == 30
    for example in task.examples("test"):
        assert example.prompt.startswith("Question: ")
        assert example.prompt.endswith("\nAnswer:")
        assert example.target == f" {example.answer}"


def test_splits_of_pydocs_share_no_passage_and_hold_enough():
    task = build("dataset=pydocs")
    texts = {split: {example.target for example in task.examples(split)} for split in ("train", "validation", "test")}
    assert min(map(len, texts.values())) >= 20
    assert not texts["train"] & (texts["validation"] | texts["test"])
    assert not texts["validation"] & texts["test"]


def test_prose_is_told_from_code():
    assert is_prose("This sentence, which is long enough to be taken for a paragraph of prose, ends in a full stop.")
    assert not is_prose("if x: y = [z for z in range(10) if z % 2 == 0]  # {'a': 1, 'b': 2} == dict(a=1, b=2); x = 0.")


def test_a_limit_takes_the_first_examples():
    task = build()
    assert tasks.load(task, "train", 5) == task.examples("train")[:5]
