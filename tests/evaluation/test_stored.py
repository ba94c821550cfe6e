from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from lossbench.errors import DataError
from lossbench.evaluation import stored
from lossbench.evaluation.metrics import aggregate
from lossbench.tracking.files import write_json

ROWS = [
    {
        "id": f"row-{n}",
        "split": "test",
        "prompt": "Question: ?\nAnswer:",
        "truncated": n == 2,
        "completion": f"<<{n}+1={n + 1}>> #### {n + 1}",
        "gold_steps": " <<1+1=2>> #### 2",
        "stop_reason": "eos",
        "n_new_tokens": 7,
        "em": n == 1,
        "error_class": "ok" if n == 1 else "wrong_value",
        "mean_logprob": -0.1 * n,
        "mean_entropy": 0.3,
        "nll_sum": 0.1 + n / 3,
        "n_tokens": 3,
        "entropy_sum": 1.0,
        "n_correct_tokens": 1,
        "eos_nll": 0.05,
        "n_bytes": 10,
        "n_words": 2,
        "gold_choice": 0,
        "choice_logprobs": [-1.0, -2.0 + n],
        "acc": n < 1,
    }
    for n in range(4)
]


def run_folder(folder: Path, metrics: dict[str, float]) -> Path:
    stored.write_rows(folder / "examples.parquet", ROWS)
    write_json(folder / "result.json", {"status": "finished", "metrics": metrics})
    return folder


def test_every_number_of_a_run_comes_back_from_its_rows(tmp_path: Path) -> None:
    metrics = aggregate(ROWS, "test")
    training = {"val/nll": 0.5, "time/eval_s": 3.0, "data/n_train": 100.0}
    run_folder(tmp_path, {**metrics, **training})
    stored.write(stored.folder_of(tmp_path, "0123456789abcdef"), {"dtype": "float32"}, metrics, ROWS)
    found = stored.recompute(tmp_path)
    assert [part.source.name for part in found] == ["result.json", "evaluation.json"]
    assert all(part.ok for part in found)
    assert all(set(part.equal) == set(metrics) for part in found)
    assert {"test/em", "test/nll", "test/confidence/ece", "test/choices/brier", "test/steps/iou"} <= set(metrics)


@pytest.mark.parametrize("change", [1e-15, 0.1, math.nan])
def test_a_changed_number_is_found_to_the_last_bit(tmp_path: Path, change: float) -> None:
    metrics = aggregate(ROWS, "test")
    run_folder(tmp_path, {**metrics, "test/nll": metrics["test/nll"] * (1 + change)})
    (found,) = stored.recompute(tmp_path)
    assert not found.ok
    assert list(found.different) == ["test/nll"]
    assert f"from the rows {metrics['test/nll']}" in str(found)


def test_a_number_that_the_rows_do_not_give_is_found(tmp_path: Path) -> None:
    run_folder(tmp_path, {**aggregate(ROWS, "test"), "test/charm": 0.9})
    (found,) = stored.recompute(tmp_path)
    assert found.different == {"test/charm": (0.9, None)}


def test_rows_come_back_as_they_were(tmp_path: Path) -> None:
    stored.write_rows(tmp_path / "examples.parquet", ROWS)
    assert stored.read_rows(tmp_path / "examples.parquet") == ROWS


def test_an_evaluation_is_never_overwritten_and_appears_whole(tmp_path: Path) -> None:
    folder = stored.folder_of(tmp_path, "0123456789abcdef")
    assert stored.read(folder) is None
    stored.write(folder, {"n": 1}, {"test/em": 0.5}, ROWS)
    before = (folder / "evaluation.json").read_bytes()
    with pytest.raises(DataError, match="is never overwritten"):
        stored.write(folder, {"n": 1}, {"test/em": 0.9}, ROWS)
    assert (folder / "evaluation.json").read_bytes() == before
    assert [entry.name for entry in folder.parent.iterdir()] == [folder.name]
    assert json.loads(before)["metrics"] == {"test/em": 0.5}


def test_fingerprints_see_every_fact() -> None:
    facts = {"dtype": "float32", "batch_size": 8, "mauve": None}
    marks = {stored.fingerprint({**facts, **change}) for change in ({}, {"dtype": "bfloat16"}, {"batch_size": 9})}
    assert len(marks) == 3
    assert stored.fingerprint(dict(reversed(facts.items()))) == stored.fingerprint(facts)


def test_an_empty_folder_has_nothing_to_recompute(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"neither a result\.json nor an evaluation"):
        stored.recompute(tmp_path)
    write_json(tmp_path / "result.json", {"metrics": {}})
    with pytest.raises(DataError, match=r"examples\.parquet is not there"):
        stored.recompute(tmp_path)
