import json
from pathlib import Path

import pytest

from lossbench.data import sources
from lossbench.errors import DataError
from tests.real_data import real_data

HUB = sources.HubDataset("nobody/nothing")


def folder(tmp_path: Path, **files: str) -> str:
    for name, text in files.items():
        (tmp_path / f"{name}.jsonl").write_text(text, encoding="utf-8")
    return str(tmp_path)


def rows(path: str, split: str) -> list[sources.Row]:
    return sources.rows(path, HUB, None, split, ("question",))


def lines(count: int) -> str:
    return "".join(json.dumps({"question": f"q{i}"}) + "\n" for i in range(count))


def test_a_tenth_of_train_becomes_validation_where_there_is_none(tmp_path: Path):
    path = folder(tmp_path, train=lines(95), test=lines(5))
    train, validation, test = (rows(path, split) for split in ("train", "validation", "test"))
    assert (len(train), len(validation), len(test)) == (85, 10, 5)
    assert not {name for name, _ in train} & {name for name, _ in validation}


def test_the_tenth_is_the_one_that_datasets_splits_off():
    from datasets import Dataset

    parts = Dataset.from_dict({"i": list(range(95))}).train_test_split(test_size=0.1, seed=42)
    assert sources.held_out_tenth(95) == (parts["test"]["i"][:], parts["train"]["i"][:])


def test_an_existing_validation_split_is_used(tmp_path: Path):
    path = folder(tmp_path, train=lines(20), validation=lines(3), test=lines(5))
    assert (len(rows(path, "train")), len(rows(path, "validation"))) == (20, 3)


def test_a_broken_line_is_named_by_its_number(tmp_path: Path):
    path = folder(tmp_path, train=lines(2) + "{oops\n", test=lines(1))
    with pytest.raises(DataError, match=r"train\.jsonl, line 3 is no JSON .*oops"):
        rows(path, "train")


def test_a_line_that_is_no_object_is_named(tmp_path: Path):
    with pytest.raises(DataError, match=r"line 1 is no JSON object but list"):
        rows(folder(tmp_path, train="[1]\n", test=lines(1)), "train")


def test_an_empty_file_is_said_to_be_empty(tmp_path: Path):
    with pytest.raises(DataError, match=r"test\.jsonl is empty"):
        rows(folder(tmp_path, train=lines(1), test="\n"), "test")


def test_a_missing_file_is_named_with_what_is_there(tmp_path: Path):
    with pytest.raises(DataError, match=r"test\.jsonl does not exist; the folder holds train\.jsonl"):
        sources.check_available(folder(tmp_path, train=lines(1)), HUB, None)


def test_a_missing_folder_is_named(tmp_path: Path):
    with pytest.raises(DataError, match=r"nowhere is no folder"):
        sources.check_available(str(tmp_path / "nowhere"), HUB, None)


@pytest.mark.parametrize("value", ['{"answer": "x"}', '{"question": 3}', '{"question": " "}'])
def test_a_field_that_a_task_needs_must_be_a_text(tmp_path: Path, value: str):
    with pytest.raises(DataError, match=r"row 1: the field 'question' must be a text"):
        rows(folder(tmp_path, train=value, test=lines(1)), "train")


def test_a_dataset_out_of_reach_says_how_to_get_it():
    with pytest.raises(DataError, match=r"hf download nobody/nothing --repo-type dataset.*dataset\.path=FOLDER"):
        sources.check_available(None, HUB, None)


def test_gsm8k_has_its_published_number_of_rows():
    path = str(real_data("datasets/gsm8k"))
    counts = {
        split: len(sources.rows(path, HUB, None, split, ("question", "answer")))
        for split in ("train", "validation", "test")
    }
    assert counts == {"train": 6725, "validation": 748, "test": 1319}
