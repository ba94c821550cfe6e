from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from transformers import PreTrainedModel
from typer.testing import CliRunner

from lossbench.cli import app
from lossbench.errors import DataError
from lossbench.evaluation import joint, mauve, stored
from lossbench.evaluation.featurizer import Featurizer
from lossbench.tracking.files import write_json
from tests.evaluation.test_open_ended import texts

pytest.importorskip("faiss")
pytest.importorskip("mauve")

EXAMPLES = texts(220)


def run_folder(study: Path, loss: str, samples: list[str], **changes: Any) -> Path:
    folder = study / f"{loss}-id"
    shared = {
        "split": "test",
        "mauve_protocol": "lossbench",
        "mauve_tokens": 24,
        "mauve_temperatures": [1.0],
        **changes,
    }
    rows = [
        {"id": e.id, "prompt": e.prompt, "mauve_target": e.target, "samples": [text], **shared}
        for e, text in zip(EXAMPLES, samples, strict=True)
    ]
    folder.mkdir(parents=True)
    stored.write_rows(folder / "examples.parquet", rows)
    write_json(folder / "result.json", {"status": "finished", "metrics": {}})
    write_json(folder / "run.json", {"id": loss, "loss": loss, "model": "m", "dataset": "d", "seed": 0})
    return folder


@pytest.fixture
def small(llama: PreTrainedModel, tokenizer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joint, "load", lambda path: Featurizer("small", llama, tokenizer))


@pytest.mark.usefixtures("small")
def test_all_runs_share_buckets_and_the_better_one_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    human_like = [EXAMPLES[n].target for n in np.random.default_rng(0).permutation(220)]
    run_folder(tmp_path, "cross_entropy", [" zebra" * 20] * 220)
    better = run_folder(tmp_path, "focal", human_like)
    found = joint.evaluate_jointly(tmp_path, clustering_seeds=(0, 1), draws=100)
    of = {result.run.name: result for result in found}
    name = "test/mauve_indicative[small,joint]"
    assert of["focal-id"].metrics[name] > of["cross_entropy-id"].metrics[name]
    gap = of["focal-id"].difference
    assert gap is not None
    assert of["cross_entropy-id"].difference is None
    assert gap.value == pytest.approx(of["focal-id"].metrics[name] - of["cross_entropy-id"].metrics[name])
    assert 0 < gap.low <= gap.value <= gap.high
    first, second = (stored.read_rows(result.folder / "examples.parquet") for result in found)
    assert [row["mauve_human"] for row in first] == [row["mauve_human"] for row in second]  # the same buckets
    assert all(part.ok for part in stored.recompute(better) if part.source.name == "evaluation.json")
    assert [result.folder for result in joint.evaluate_jointly(tmp_path, clustering_seeds=(0, 1), draws=100)] == [
        result.folder for result in found
    ]
    monkeypatch.setattr(joint, "DRAWS", 10)
    output = CliRunner().invoke(app, ["evaluate", str(tmp_path), "--joint", "--json"])
    assert output.exit_code == 0, output.output
    assert len(json.loads(output.stdout)) == 2
    assert len(list(tmp_path.glob("*/evaluations/*/evaluation.json"))) == 4  # other seeds, another fingerprint


@pytest.mark.usefixtures("small")
def test_one_clustering_of_one_run_is_that_of_mauve_alone(tmp_path: Path, llama: Any, tokenizer: Any) -> None:
    featurizer = Featurizer("small", llama, tokenizer)
    samples = [e.target for e in reversed(EXAMPLES)]
    folder = run_folder(tmp_path, "focal", samples)
    rows = stored.read_rows(folder / "examples.parquet")
    (made,) = joint.joint_rows({folder: rows}, featurizer, [3], 64).values()
    human, model = (
        featurizer.encode([e.prompt + text for e, text in zip(EXAMPLES, side, strict=True)])
        for side in ([e.target for e in EXAMPLES], samples)
    )
    assert min(map(len, [*human, *model])) >= 24
    features = [featurizer.features([ids[:24] for ids in side]) for side in (human, model)]
    p, q = mauve.buckets(*features, 22, 3)
    assert [row["mauve_human"] for row in made] == [[[bucket]] for bucket in p.tolist()]
    assert [row["mauve_model"] for row in made] == [[[bucket]] for bucket in q.tolist()]


@pytest.mark.usefixtures("small")
def test_runs_that_cannot_be_compared_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="holds no run folder"):
        joint.evaluate_jointly(tmp_path)
    run_folder(tmp_path, "focal", ["a"] * 220)
    with pytest.raises(DataError, match="holds 1 runs with samples"):
        joint.evaluate_jointly(tmp_path)
    run_folder(tmp_path, "emo", ["a"] * 220, mauve_tokens=20)
    with pytest.raises(DataError, match="do not share a protocol"):
        joint.evaluate_jointly(tmp_path)
    run_folder(tmp_path, "a", ["a"] * 220, split="validation")
    with pytest.raises(DataError, match="do not share texts"):
        joint.evaluate_jointly(tmp_path)
