from __future__ import annotations

import pytest

from lossbench import app
from lossbench.data import task as tasks
from lossbench.data.corruption import corrupted, training_examples
from lossbench.data.example import Example
from lossbench.errors import ConfigError

EXAMPLES = [Example(f"e-{n}", f"Question {n}", f" answer {n}") for n in range(50)]
LETTERS = [Example(f"l-{n}", f"Question {n}", " A" if n % 10 else " B") for n in range(50)]


def changed(before: list[Example], after: list[Example]) -> list[int]:
    return [n for n, (one, other) in enumerate(zip(before, after, strict=True)) if one.target != other.target]


@pytest.mark.parametrize(("share", "count"), [(0.2, 10), (0.4, 20), (0.99, 50), (0.001, 0)])
@pytest.mark.parametrize("examples", [EXAMPLES, LETTERS])
def test_a_share_of_the_examples_gets_another_target_of_the_dataset(
    examples: list[Example], share: float, count: int
) -> None:
    after = corrupted(examples, share, seed=0)
    assert len(changed(examples, after)) == count
    assert {example.target for example in after} <= {example.target for example in examples}
    assert [(example.id, example.prompt) for example in after] == [(e.id, e.prompt) for e in examples]


def test_the_seed_alone_says_which_and_a_larger_share_holds_the_smaller_one() -> None:
    small, large = corrupted(EXAMPLES, 0.2, seed=3), corrupted(EXAMPLES, 0.4, seed=3)
    assert small == corrupted(EXAMPLES, 0.2, seed=3)
    assert small != corrupted(EXAMPLES, 0.2, seed=4)
    assert all(large[n] == small[n] for n in changed(EXAMPLES, small))
    assert set(changed(EXAMPLES, small)) < set(changed(EXAMPLES, large))


def test_wrong_targets_come_from_all_over_the_dataset() -> None:
    after = corrupted(EXAMPLES, 0.98, seed=0)
    assert len({example.target for example in after}) > 25  # 1 - 1/e of 50 are expected


def test_no_share_changes_nothing() -> None:
    assert corrupted(EXAMPLES, 0.0, seed=0) == EXAMPLES


@pytest.mark.parametrize(
    ("examples", "share", "sentence"),
    [
        (EXAMPLES, 1.0, r"dataset\.corrupt_targets=1\.0 cannot be used"),
        (EXAMPLES, -0.1, r"0 <= share < 1"),
        ([Example("text-1", "", "A whole text.")], 0.5, "text-1 has no prompt"),
        ([Example("row-1", "", "", meta={"input_ids": [1], "target_start": 0})], 0.5, "row-1 comes as prepared tokens"),
        ([Example(str(n), "Q", " same") for n in range(4)], 0.5, "needs two different targets, and all 4"),
    ],
)
def test_what_cannot_be_corrupted_is_a_sentence(examples: list[Example], share: float, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        corrupted(examples, share, seed=0)


@pytest.mark.parametrize("value", ["1.0", "-0.1", "half"])
def test_the_configuration_refuses_what_is_no_share(value: str) -> None:
    with pytest.raises(ConfigError, match=r"dataset\.corrupt_targets"):
        app.compose(f"dataset.corrupt_targets={value}")


def test_a_run_trains_on_corrupted_targets_and_says_how_many() -> None:
    config = app.compose("dataset.corrupt_targets=0.25", "dataset.limit=40", "seed=1")
    task = tasks.create(config.dataset)
    clean = tasks.load(task, "train", 40)
    trained = training_examples(task, config)
    assert len(changed(clean, trained)) == 10
    assert {example.target for example in trained} <= {example.target for example in clean}
    assert task.notes.counts == {"train_corrupted": 10}
    assert task.notes.sentences == ["10 of 40 training examples have the target of another one."]


def test_prepared_rows_are_refused_a_corruption() -> None:
    with pytest.raises(ConfigError, match="prepared with their own targets"):
        app.prepare(["out=nowhere", "dataset=gsm8k", "dataset.corrupt_targets=0.2", "model.path=lossbench:tiny"])
