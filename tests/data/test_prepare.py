import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from lossbench.data.prepare import positions_of, prepare, seed_overrides
from lossbench.data.prepared import prepare_rows
from lossbench.errors import ConfigError
from tests.data.golden import source_task
from tests.models_at_hand import byte_tokenizer


@pytest.fixture
def gsm8k(tmp_path: Path) -> str:
    row = {"question": "How many are three and four?", "answer": "3+4=<<3+4=7>>7\n#### 7"}
    for split, count in (("train", 20), ("test", 3)):
        (tmp_path / f"{split}.jsonl").write_text(f"{json.dumps(row)}\n" * count)
    return f"dataset.path={tmp_path}"


@pytest.mark.parametrize("positions", ["seed", "exact"])
def test_every_split_is_written_and_reads_back(gsm8k: str, tmp_path: Path, positions: str):
    task = source_task("dataset=gsm8k", "dataset.prompt=seed", gsm8k)
    found = prepare(task, byte_tokenizer(), tmp_path / "out", positions=positions_of(positions))
    assert [(file.path.name, file.rows) for file in found] == [
        ("train.parquet", 18), ("validation.parquet", 2), ("test.parquet", 3),
    ]  # fmt: skip
    expected = prepare_rows(task.examples("test"), byte_tokenizer(), 128, positions=positions_of(positions))
    rows = pq.read_table(tmp_path / "out" / "test.parquet").to_pylist()
    assert [(row["input_ids"], row["labels_position_id"]) for row in rows] == [
        (row.input_ids, [row.position]) for row in expected
    ]
    again = source_task("dataset=parquet", f"dataset.path={tmp_path / 'out'}")
    assert len(again.examples("train")) == 18


def test_cut_prompts_are_counted_and_said(gsm8k: str, tmp_path: Path):
    task = source_task("dataset=gsm8k", gsm8k)
    *_, test = prepare(task, byte_tokenizer(), tmp_path / "out", length=40, limit=2)
    assert (test.rows, test.truncated) == (2, 2)
    assert "2 rows, 2 of them with the beginning of their prompt cut off" in str(test)


def test_a_task_that_the_paper_lacks_needs_a_length(tmp_path: Path):
    with pytest.raises(ConfigError, match=r"no rows of OwnData: say how long .* dataset\.max_length=N"):
        prepare(source_task("dataset=jsonl"), byte_tokenizer(), tmp_path)


def test_positions_are_seed_or_exact():
    with pytest.raises(ConfigError, match="positions='sead' cannot be used: it must be seed or exact"):
        positions_of("sead")


def test_defective_targets_go_with_the_papers_positions_alone():
    options = source_task("dataset=mathqa").model_dump()
    assert "dataset.target_format=seed" in seed_overrides(options, "seed")
    assert seed_overrides(options, "exact") == ["dataset.prompt=seed", "dataset.split_policy=seed"]
