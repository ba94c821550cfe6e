from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lossbench.data.prepared import PreparedRow, with_texts, write
from lossbench.data.tokens import tokenize
from lossbench.errors import DataError
from tests.data.golden import FOLDER, source_task
from tests.models_at_hand import byte_tokenizer

TOKENIZER = byte_tokenizer()
ROW = PreparedRow([0, 0, *b"Q: A", 257], [0, 0, 1, 1, 1, 1, 1], position=5)


def folder(tmp_path: Path, **splits: list[PreparedRow]) -> str:
    for split, rows in splits.items():
        write(rows, tmp_path / f"{split}.parquet")
    return f"dataset.path={tmp_path}"


def test_prepared_rows_keep_their_tokens_and_boundary(tmp_path: Path):
    task = source_task("dataset=parquet", folder(tmp_path, train=[ROW], validation=[ROW], test=[ROW]))
    (tokens,) = tokenize(task.examples("test"), TOKENIZER, 100)
    assert tokens.input_ids == [*b"Q: A", 257]
    assert (tokens.target_start, tokens.truncated) == (3, False)


def test_prepared_rows_can_be_scored_as_text(tmp_path: Path):
    task = source_task("dataset=parquet", folder(tmp_path, train=[ROW], test=[ROW]), "dataset.answer=target")
    row = PreparedRow([*TOKENIZER("QA", add_special_tokens=False)["input_ids"], 257], [1, 1, 1], position=1)
    write([row], tmp_path / "test.parquet")
    (example,) = with_texts(task.examples("test"), TOKENIZER)
    assert (example.prompt, example.target, example.answer) == ("Q", "A", "A")


def test_rows_whose_target_fills_them_are_left_out_of_training_alone(tmp_path: Path):
    full = PreparedRow([1, 2, 3], [1, 1, 1], position=0)
    rows = [full, ROW, ROW, ROW]
    task = source_task("dataset=parquet", folder(tmp_path, train=rows, validation=rows, test=rows))
    assert [len(task.examples(split)) for split in ("train", "validation", "test")] == [3, 4, 4]
    assert task.notes.counts["train_position_0"] == 1


def test_the_file_of_the_papers_code_is_read(tmp_path: Path):
    for split in ("train", "validation", "test"):
        (tmp_path / f"{split}.parquet").write_bytes((FOLDER / "seed_example.parquet").read_bytes())
    found = source_task("dataset=parquet", f"dataset.path={tmp_path}").examples("test")
    rows = pq.read_table(FOLDER / "seed_example.parquet").to_pylist()
    assert len(found) == len(rows) == 3
    for example, row in zip(found, rows, strict=True):
        padding = row["attention_mask"].count(0)
        assert example.meta["input_ids"] == row["input_ids"][padding:]
        assert example.meta["target_start"] == max(0, row["labels_position_id"][0] - padding)


def test_columns_of_text_are_read_as_fields(tmp_path: Path):
    for split in ("train", "validation", "test"):
        pq.write_table(pa.table({"prompt": ["Q"], "target": [" A"]}), tmp_path / f"{split}.parquet")
    (example,) = source_task("dataset=parquet", f"dataset.path={tmp_path}").examples("test")
    assert (example.prompt, example.target) == ("Q", " A")


@pytest.mark.parametrize(
    "row",
    [
        PreparedRow([1, 2, 3], [1, 0, 1], position=1),
        PreparedRow([1, 2, 3], [1, 1, 1], position=3),
        PreparedRow([1, 2, 3], [1, 1], position=1),
    ],
)
def test_a_row_that_makes_no_sense_is_named(tmp_path: Path, row: PreparedRow):
    task = source_task("dataset=parquet", folder(tmp_path, train=[ROW], validation=[ROW], test=[row]))
    with pytest.raises(DataError, match=r"test\.parquet, row 1: "):
        task.examples("test")
