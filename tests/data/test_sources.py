import gzip
import json
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lossbench.data import sources
from lossbench.data.sources import Folder, Row
from lossbench.errors import DataError

HUB = sources.HubDataset("nobody/nothing")
LINE = '{"question": "q"}\n'


def read(folder: Path, split: str = "train") -> list[Row]:
    return Folder(folder).read(split)


@pytest.mark.parametrize(
    ("file", "split"),
    [
        ("train.jsonl", "train"),
        ("validation.jsonl.gz", "validation"),
        ("dev.json", "validation"),
        ("webtext.valid.jsonl", "validation"),
        ("wiki.test.tokens", "test"),
        ("ptb.test.txt", "test"),
        ("test-00000-of-00002.parquet", "test"),
        ("validation_facts.jsonl", None),
        ("challenge_test.jsonl", None),
        ("train.csv", None),
        ("LICENSE", None),
    ],
)
def test_a_files_name_says_its_split(tmp_path: Path, file: str, split: str | None):
    (tmp_path / file).touch()
    assert Folder(tmp_path).splits() == ({split} if split else set())


def test_every_kind_of_file_gives_the_same_rows(tmp_path: Path):
    fields = [{"text": "one\n"}, {"text": "zwei €\n"}]
    lines = "".join(json.dumps(row) + "\n" for row in fields)
    contents = {
        "train.jsonl": lines.encode(),
        "train.jsonl.gz": gzip.compress(lines.encode()),
        "train.json": json.dumps(fields, indent=1).encode(),
        "train.txt": "one\nzwei €\n".encode(),
        "train.tokens": "\ufeffone\r\nzwei €".encode(),
    }
    for name, content in contents.items():
        folder = tmp_path / name.replace(".", "_")
        folder.mkdir()
        (folder / name).write_bytes(content)
        assert [row.fields for row in read(folder)] == fields, name
        assert [row.name for row in read(folder)] == ["train-0", "train-1"]


def test_shards_are_read_in_their_order(tmp_path: Path):
    for shard in range(3):
        pq.write_table(pa.table({"i": [2 * shard, 2 * shard + 1]}), tmp_path / f"train-0000{shard}-of-00003.parquet")
    assert [row.fields["i"] for row in read(tmp_path)] == list(range(6))


def test_two_files_for_one_split_are_refused(tmp_path: Path):
    for name in ("train.jsonl", "train.txt"):
        (tmp_path / name).write_text(LINE)
    with pytest.raises(DataError, match=r"2 files for train: train\.jsonl, train\.txt"):
        Folder(tmp_path).splits()


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        (b"{oops\n", r"line 3 is no JSON \(.*oops"),
        (b"[1]\n", r"line 3 is no JSON object but list"),
        (b'{"question": "\xff"}\n', r"line 3 is no JSON \(.*utf-8"),
    ],
)
def test_a_broken_line_is_a_row_with_a_fault_that_names_it(tmp_path: Path, line: bytes, fault: str):
    (tmp_path / "train.jsonl").write_bytes(LINE.encode() + b"\n" + line + LINE.encode())
    rows = read(tmp_path)
    assert [row.fault is None for row in rows] == [True, False, True]
    assert rows[2].place.endswith("train.jsonl, line 4")
    assert re.search(fault, rows[1].fault or "")


def test_an_empty_file_is_said_to_be_empty(tmp_path: Path):
    (tmp_path / "test.jsonl").write_text("\n")
    with pytest.raises(DataError, match=r"test\.jsonl is empty"):
        read(tmp_path, "test")


@pytest.mark.parametrize("name", ["train.jsonl.gz", "train.parquet", "train.json"])
def test_a_damaged_file_is_named(tmp_path: Path, name: str):
    whole = gzip.compress(LINE.encode() * 100)
    (tmp_path / name).write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match=rf"{name} (cannot be read|is no Parquet|is no JSON)"):
        read(tmp_path)


def test_a_missing_folder_is_named(tmp_path: Path):
    with pytest.raises(DataError, match=r"nowhere is no folder"):
        sources.check_available(str(tmp_path / "nowhere"), HUB, None)


def test_a_folder_without_data_says_what_it_holds_and_what_is_known(tmp_path: Path):
    (tmp_path / "data.csv").touch()
    with pytest.raises(DataError, match=r"train\.jsonl does not exist; the folder holds data\.csv\. Known kinds"):
        sources.check_available(str(tmp_path), HUB, None)


@pytest.mark.parametrize("fields", [{"answer": "x"}, {"question": 3}, {"question": " "}])
def test_a_field_that_a_task_needs_must_be_a_text(fields: dict):
    with pytest.raises(DataError, match=r"line 1: the field 'question' must be a text .*; the row has "):
        Row("train-0", "line 1", fields).text("question")


def test_a_dataset_out_of_reach_says_how_to_get_it():
    with pytest.raises(DataError, match=r"hf download nobody/nothing --repo-type dataset.*dataset\.path=FOLDER"):
        sources.check_available(None, HUB, None)
