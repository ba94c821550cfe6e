import pytest
from hypothesis import given
from hypothesis import strategies as st

from lossbench.data.splits import Holdout, Part, assign

NAMES = ("train", "validation", "test")


def test_a_shuffled_tenth_is_the_one_that_datasets_splits_off():
    from datasets import Dataset

    parts = Dataset.from_dict({"i": list(range(95))}).train_test_split(test_size=0.1, seed=42)
    cut = Holdout().parts("train")
    assert list(cut["validation"].indices(95)) == parts["test"]["i"][:]
    assert list(cut["train"].indices(95)) == parts["train"]["i"][:]


@given(st.integers(0, 300), st.sampled_from([Holdout(), Holdout(5, shuffled=False)]))
def test_a_holdout_and_its_rest_share_no_row_and_lose_none(count: int, holdout: Holdout):
    parts = holdout.parts("train")
    held, kept = (list(parts[name].indices(count)) for name in ("validation", "train"))
    assert sorted([*held, *kept]) == list(range(count))


@pytest.mark.parametrize("policy", ["seed", "clean"])
@pytest.mark.parametrize("found", [{"train", "test"}, {"validation", "test"}, {"train"}, {"validation"}, set(NAMES)])
def test_splits_share_no_row_whatever_the_source_has(found: set[str], policy: str):
    parts, sentence = assign(found, policy)
    rows = {name: {(part.source, i) for i in part.indices(100)} for name, part in parts.items()}
    assert rows.keys() == set(NAMES)
    assert sum(map(len, rows.values())) == len(set().union(*rows.values())) == 100 * len(found)
    assert (sentence is None) == (found == set(NAMES))


def test_without_test_labels_only_the_seed_policy_validates_on_the_test_rows():
    seed, sentence = assign({"train", "validation"}, "seed")
    assert seed == {"train": Part("train"), "validation": Part("validation"), "test": Part("validation")}
    assert "same rows" in (sentence or "")
    clean, _ = assign({"train", "validation"}, "clean")
    assert clean["validation"] == Part("train", 0, 10, shuffled=True)


def test_a_lone_test_split_is_never_trained_on():
    assert assign({"test"}, "clean") == ({"test": Part("test")}, None)
