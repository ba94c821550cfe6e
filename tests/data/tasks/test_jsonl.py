import json
from pathlib import Path

import pytest

from lossbench.data.example import Example
from lossbench.data.sources import Row
from lossbench.errors import ConfigError, DataError
from tests.data.golden import source_task

ROW = {"q": "1 + 1?", "a": "It is 2.", "n": 2, "options": ["one", "two"], "right": "two", "key": 1}


def one(*overrides: str, row: dict = ROW) -> Example:
    made = source_task("dataset=jsonl", *overrides).example(Row("train-0", "train.jsonl, line 1", row))
    assert isinstance(made, Example)
    return made


def test_fields_are_mapped_by_name_or_by_template():
    found = one('dataset.prompt="Q: {q}\\nA:"', 'dataset.target=" {a}"', "dataset.answer=n", "dataset.id=key")
    assert found == Example("owndata-1", "Q: 1 + 1?\nA:", " It is 2.", "2")


def test_without_a_prompt_the_target_is_the_whole_text():
    task = source_task("dataset=jsonl", "dataset.prompt=null", "dataset.target=a")
    found = task.example(Row("train-0", "line 1", ROW))
    assert isinstance(found, Example)
    assert (found.prompt, found.target, found.answer) == ("", "It is 2.", None)
    assert task.metrics == ("perplexity",)


@pytest.mark.parametrize("answer", ["right", "key", "letter"])
def test_the_right_choice_is_given_by_text_number_or_letter(answer: str):
    found = one(
        'dataset.prompt="{q}\\n{listed_choices}\\nAnswer:"', "dataset.target=right", "dataset.choices=options",
        f"dataset.answer={answer}", row={**ROW, "letter": "b"},
    )  # fmt: skip
    assert found.prompt == "1 + 1?\nA. one\nB. two\nAnswer:"
    assert (found.answer, found.gold_choice) == ("B", 1)


def test_choices_and_answers_decide_the_metrics():
    options = ("dataset=jsonl", "dataset.choices=options", "dataset.answer=right", "dataset.max_answer_tokens=4")
    task = source_task(*options)
    assert (task.metrics, task.answer_rule, task.max_new_tokens) == (
        ("exact_match", "choices", "perplexity"), "letter", 4,
    )  # fmt: skip


def test_a_missing_field_is_named_with_those_that_are_there():
    with pytest.raises(DataError, match=r"train\.jsonl, line 1: the field 'prompt' must be a text .* the row has q, a"):
        one()


def test_an_answer_that_is_no_choice_is_refused():
    with pytest.raises(DataError, match=r"the answer 'It is 2.' is no letter, number from 0 or text of"):
        one("dataset.prompt=q", "dataset.target=a", "dataset.answer=a", "dataset.choices=options")


def test_a_broken_template_is_a_mistake_in_the_configuration():
    with pytest.raises(ConfigError, match=r"the template dataset\.target='\{a b\}' is broken: \{a b\} is no name"):
        source_task("dataset=jsonl", 'dataset.target="{a b}"')


def test_without_a_path_the_task_says_what_it_needs():
    with pytest.raises(DataError, match=r"dataset\.path must name a folder with the data\. It holds train\.jsonl"):
        source_task("dataset=jsonl").check_available()


def test_a_folder_with_one_file_is_cut_into_three_splits(tmp_path: Path):
    lines = (json.dumps({"prompt": f"{i}", "target": f" {i}"}) for i in range(50))
    (tmp_path / "train.jsonl").write_text("\n".join(lines))
    task = source_task("dataset=jsonl", f"dataset.path={tmp_path}")
    found = [task.examples(split) for split in ("train", "validation", "test")]
    assert [len(examples) for examples in found] == [40, 5, 5]
    assert len({example.id for examples in found for example in examples}) == 50
    assert any("only a train split" in sentence for sentence in task.notes.sentences)
