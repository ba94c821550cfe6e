import pytest

from lossbench.data.example import Example
from lossbench.data.sources import Row
from lossbench.data.splits import Part, assign
from lossbench.data.tasks.hellaswag import HellaSwag, clean
from lossbench.errors import DataError
from tests.data.golden import load, source_task
from tests.real_data import real_data

DOC = load("prompts")["hellaswag"][1]["doc"]


def test_cleaning_can_be_chosen_apart_from_the_prompt():
    cleaned = source_task("dataset=hellaswag", "dataset.cleaning=lm_eval").example(Row("a", "line 1", DOC))
    assert isinstance(cleaned, Example)
    assert "[" not in cleaned.prompt
    raw = source_task("dataset=hellaswag", "dataset.prompt=lm_eval", "dataset.cleaning=none")
    found = raw.example(Row("a", "line 1", DOC))
    assert isinstance(found, Example)
    assert list(found.choices) == DOC["endings"]


def test_a_mark_at_the_beginning_leaves_its_space():
    assert clean("[substeps] sings") == " sings"
    assert clean("Do it [title] Then [step] that") == "Do it. Then that"


@pytest.mark.parametrize(("field", "value"), [("label", ""), ("label", "7"), ("endings", ["a"]), ("endings", None)])
def test_a_row_without_label_or_endings_is_refused_by_name(field: str, value: object):
    with pytest.raises(DataError, match=rf"val\.jsonl, line 3: the field '{field}' must be"):
        source_task("dataset=hellaswag").example(Row("a", "val.jsonl, line 3", {**DOC, field: value}))


def test_the_clean_policy_validates_on_train_and_the_seed_policy_on_the_test_rows():
    found = set(HellaSwag.published)
    clean_parts, seed_parts = assign(found, "clean")[0], assign(found, "seed")[0]
    assert clean_parts["test"] == seed_parts["test"] == seed_parts["validation"] == Part("validation")
    assert clean_parts["validation"].source == "train"


@pytest.mark.parametrize("prompt", ["seed", "lm_eval"])
def test_every_real_row_has_four_choices_and_one_right_one(prompt: str):
    path = real_data("datasets/hellaswag/validation.jsonl.gz").parent
    task = source_task("dataset=hellaswag", f"dataset.path={path}", f"dataset.prompt={prompt}")
    examples = [*task.examples("train"), *task.examples("validation"), *task.examples("test")]
    assert len({example.id for example in examples}) == 10_042
    assert all(len(example.choices) == 4 and example.gold_choice is not None for example in examples)
    assert any("only a validation split" in sentence for sentence in task.notes.sentences)
    assert any("ctx_a" in sentence for sentence in task.notes.sentences) == (prompt == "lm_eval")
