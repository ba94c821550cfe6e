from pathlib import Path

import pyarrow.parquet as pq
import pytest
from transformers import AutoTokenizer

from lossbench.data.example import Example
from lossbench.data.prepared import PreparedRow, prepare_rows, write
from lossbench.data.tokens import tokenize
from lossbench.errors import DataError
from tests.data import golden
from tests.models_at_hand import byte_tokenizer

ROWS = golden.load("seed_parquet_rows")["cases"]
DOCS = golden.load("prompts")
TOKENIZERS = {
    name: AutoTokenizer.from_pretrained(golden.FOLDER / "tokenizers" / name)
    for name in ("bytelevel_nobos", "llama_like_bos")
}


def example(case: dict) -> Example:
    found = golden.example(case["dataset"], DOCS[case["dataset"]][case["i"]]["doc"], "dataset.prompt=seed")
    assert isinstance(found, Example)
    return found


def name(case: dict) -> str:
    return f"{case['tokenizer']}-{case['dataset']}-{case['i']}-{case['max_length']}"


@pytest.mark.parametrize("case", ROWS, ids=name)
def test_seed_rows_equal_those_of_the_papers_code(case: dict):
    (row,) = prepare_rows([example(case)], TOKENIZERS[case["tokenizer"]], case["max_length"])
    assert row == PreparedRow(
        case["input_ids"], case["attention_mask"], case["labels_position_id"][0], case["truncated"]
    )


@pytest.mark.parametrize("case", ROWS, ids=name)
def test_exact_rows_have_the_same_tokens_and_the_true_boundary(case: dict):
    tokenizer, made = TOKENIZERS[case["tokenizer"]], example(case)
    (row,) = prepare_rows([made], tokenizer, case["max_length"], positions="exact")
    assert (row.input_ids, row.attention_mask) == (case["input_ids"], case["attention_mask"])
    assert tokenizer.decode(row.input_ids[row.position : -1]).strip() == made.target.strip()
    (tokens,) = tokenize([made], tokenizer, 1000)
    assert row.input_ids[row.position :] == tokens.input_ids[tokens.target_start :]


def test_a_row_that_its_target_fills_begins_at_position_0():
    made = Example("a", "Q", "0123456789")
    (row,) = prepare_rows([made], byte_tokenizer(adds_bos=False), 5, positions="exact")
    assert row.position == 0
    assert len(row.input_ids) == 5
    assert row.truncated


def test_a_tokenizer_without_eos_is_refused():
    tokenizer = byte_tokenizer()
    tokenizer.eos_token = None
    with pytest.raises(DataError, match="needs an EOS token"):
        prepare_rows([Example("a", "Q", "A")], tokenizer, 8)


def test_the_file_has_the_papers_schema(tmp_path: Path):
    write([PreparedRow([1, 2], [0, 1], 1)], tmp_path / "a.parquet")
    found = pq.read_table(tmp_path / "a.parquet")
    assert {field.name: str(field.type) for field in found.schema} == golden.load("seed_parquet_schema")
    assert found.to_pylist() == [{"input_ids": [1, 2], "attention_mask": [0, 1], "labels_position_id": [1]}]
    assert [file.name for file in tmp_path.iterdir()] == ["a.parquet"]
