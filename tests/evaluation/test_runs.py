"""What a whole run evaluates when it is asked for more than the default."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lossbench import app, reevaluate
from lossbench.errors import DataError
from lossbench.evaluation import stored
from lossbench.reevaluate import Wishes
from lossbench.run import run

SMALL = (
    "trainer.max_steps=1",
    "trainer.batch_size=2",
    "trainer.progress=false",
    "dataset.train_examples=4",
    "dataset.validation_examples=2",
    "evaluation.generate=false",
    "tracking.mode=disabled",
)
MAUVE = (
    "evaluation=mauve",
    "evaluation.mauve.generation_seeds=1",
    "evaluation.mauve.clustering_seeds=1",
    "evaluation.mauve.tokens=20",
    "evaluation.mauve.max_new_tokens=2",
)


def test_a_run_with_mauve_records_it_and_it_comes_back_from_the_rows(tmp_path: Path) -> None:
    pytest.importorskip("faiss")
    pytest.importorskip("mauve")
    folder = run(app.compose(f"paths.runs={tmp_path}", *SMALL, *MAUVE, "dataset.test_examples=200"))
    metrics = json.loads((folder / "result.json").read_text())["metrics"]
    assert metrics["test/mauve_indicative[tiny]/n"] == 200
    assert 0 < metrics["test/mauve_indicative[tiny]"] <= 1
    assert "test/em" not in metrics
    assert all(part.ok for part in stored.recompute(folder))
    again = reevaluate.evaluate(str(folder), Wishes(metrics=("mauve",), overrides=("trainer.accelerator=cpu",)))
    assert again.metrics["test/mauve_indicative[tiny]"] == metrics["test/mauve_indicative[tiny]"]
    with pytest.raises(DataError, match="has 150: with so few"):
        reevaluate.evaluate(str(folder), Wishes(metrics=("mauve",), overrides=("evaluation.limit=150",)))


def test_too_few_texts_for_mauve_are_said_before_training(tmp_path: Path) -> None:
    pytest.importorskip("faiss")
    pytest.importorskip("mauve")
    with pytest.raises(DataError, match="the test split of Arithmetic has 100"):
        run(app.compose(f"paths.runs={tmp_path}", *SMALL, *MAUVE, "dataset.test_examples=100"))
    assert not list(tmp_path.glob("**/checkpoints/*.safetensors"))


def test_a_language_model_can_be_scored_on_whole_texts_too(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    for split, count in (("train", 3), ("validation", 1), ("test", 2)):
        (tmp_path / "data" / f"{split}.txt").write_text("A line of plain words, and then some more.\n" * count)
    more = ("dataset=wikitext2", f"dataset.path={tmp_path / 'data'}", "evaluation.rolling=true")
    own = [setting for setting in SMALL if not setting.startswith("dataset.")]
    folder = run(app.compose(f"paths.runs={tmp_path}", *own, *more))
    metrics = json.loads((folder / "result.json").read_text())["metrics"]
    names = {name.partition("/")[2] for name in metrics if "rolling" in name}
    assert len(names) == 6
    assert all(part.ok for part in stored.recompute(folder))
