import json
from pathlib import Path
from typing import ClassVar

import pytest

from lossbench.data.example import Example
from lossbench.data.source_task import LeftOut, SourceTask
from lossbench.data.sources import Row
from lossbench.errors import DataError


class Numbers(SourceTask):
    published: ClassVar = {"train": 20, "test": 3}

    def example(self, row: Row) -> Example | LeftOut:
        number = row.text("number")
        return LeftOut("they are odd") if int(number) % 2 else Example(row.name, "", number)


def folder(tmp_path: Path, **splits: list[str]) -> str:
    for split, lines in splits.items():
        (tmp_path / f"{split}.jsonl").write_text("".join(f"{line}\n" for line in lines))
    return str(tmp_path)


def rows(*numbers: int) -> list[str]:
    return [json.dumps({"number": str(number)}) for number in numbers]


BAD = ["{oops", '{"number": null}', "[]", '{"other": "1"}']


def test_malformed_rows_stop_the_task_with_their_places_and_their_count(tmp_path: Path):
    task = Numbers(path=folder(tmp_path, train=rows(*range(20)), test=[*rows(2), *BAD]))
    with pytest.raises(DataError) as caught:
        task.examples("test")
    message = str(caught.value)
    assert "4 of 5 rows of test are malformed" in message
    assert "test.jsonl, line 2 is no JSON" in message
    assert "test.jsonl, line 3: the field 'number'" in message
    assert "..." in message and "dataset.skip_bad=true" in message


def test_malformed_rows_can_be_skipped_and_are_counted(tmp_path: Path):
    task = Numbers(path=folder(tmp_path, train=rows(*range(20)), test=[*rows(2), *BAD, *rows(4)]), skip_bad=True)
    assert [example.target for example in task.examples("test")] == ["2", "4"]
    assert task.notes.counts["test_skipped"] == 4
    assert any("4 of 6 rows of test are malformed and left out" in sentence for sentence in task.notes.sentences)


def test_a_row_keeps_its_id_when_another_one_is_skipped(tmp_path: Path):
    task = Numbers(path=folder(tmp_path, train=rows(*range(20)), test=[BAD[0], *rows(2)]), skip_bad=True)
    assert [example.id for example in task.examples("test")] == ["test-1"]


def test_rows_that_have_no_place_are_counted_by_reason(tmp_path: Path):
    task = Numbers(path=folder(tmp_path, train=rows(*range(20)), test=rows(1, 2, 3)))
    assert len(task.examples("test")) == 1
    assert task.notes.counts["test_left_out"] == 2
    assert "Numbers test: 2 of 3 rows are left out, because they are odd." in task.notes.sentences


@pytest.mark.parametrize(("count", "said"), [(3, False), (4, True)])
def test_a_number_of_rows_that_was_not_published_is_said(tmp_path: Path, count: int, said: bool):
    task = Numbers(path=folder(tmp_path, train=rows(*range(20)), test=rows(*range(count))))
    task.examples("test")
    assert any("has 4 rows, but 3 were published" in sentence for sentence in task.notes.sentences) == said


def test_a_published_test_split_must_be_there(tmp_path: Path):
    with pytest.raises(DataError, match=r"test\.jsonl does not exist; the folder holds train\.jsonl"):
        Numbers(path=folder(tmp_path, train=rows(1))).examples("train")


def test_nothing_is_trained_on_a_lone_test_split(tmp_path: Path):
    task = Numbers(path=folder(tmp_path, test=rows(2)))
    assert len(task.examples("test")) == 1
    with pytest.raises(DataError, match=r"train\.jsonl does not exist; the folder holds test\.jsonl"):
        task.examples("train")
