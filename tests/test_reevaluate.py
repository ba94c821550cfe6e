"""Evaluation after the fact: of finished runs, checkpoints and models that were not trained."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
import yaml
from typer.testing import CliRunner

from lossbench import reevaluate
from lossbench.app import compose
from lossbench.cli import app
from lossbench.errors import ConfigError, DataError
from lossbench.evaluation import stored
from lossbench.reevaluate import Wishes
from lossbench.report.collect import collect
from lossbench.run import run
from lossbench.training.state import read_state, write_state

QUICK = ("evaluation.limit=6", "evaluation.generate=false", "trainer.accelerator=cpu", "trainer.progress=false")
TRAINING = (
    "trainer.max_steps=2",
    "dataset.train_examples=40",
    "evaluation.validation_limit=4",
    "tracking.mode=disabled",
    "optimizer.lr=0.003",
)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def full(runs: Path) -> Path:
    """A finished run that trained all weights."""
    return run(compose(f"paths.runs={runs}", "study=full", *QUICK, *TRAINING))


@pytest.fixture(scope="module")
def lora(runs: Path) -> Path:
    """A finished run that trained LoRA alone."""
    return run(compose(f"paths.runs={runs}", "study=lora", "peft=lora", *QUICK, *TRAINING))


def metrics_of(folder: Path) -> dict:
    return json.loads((folder / "result.json").read_text())["metrics"]


@pytest.mark.parametrize("kind", ["full", "lora"])
def test_a_finished_run_gives_its_own_numbers_again(kind: str, request: pytest.FixtureRequest) -> None:
    folder = request.getfixturevalue(kind)
    found = reevaluate.evaluate(str(folder), Wishes())
    assert found.is_new
    assert found.folder.parent == folder / "evaluations"
    assert found.metrics["test/nll"] == pytest.approx(metrics_of(folder)["test/nll"], rel=1e-6)


def test_the_checkpoint_is_what_is_evaluated(full: Path, lora: Path, runs: Path) -> None:
    untrained = reevaluate.evaluate("lossbench:tiny", Wishes(overrides=(f"paths.runs={runs}", *QUICK)))
    for folder in (full, lora):
        checkpoint = folder / "checkpoints" / "best.safetensors"
        trained = reevaluate.evaluate(str(checkpoint), Wishes()).metrics["test/nll"]
        assert trained != pytest.approx(untrained.metrics["test/nll"], rel=1e-3)


def test_other_weights_are_another_evaluation(full: Path, tmp_path: Path) -> None:
    copy = tmp_path / full.name
    shutil.copytree(full, copy)
    first = reevaluate.evaluate(str(copy), Wishes())
    file = copy / "checkpoints" / "best.safetensors"
    moved = {name: weight + 0.01 if torch.is_tensor(weight) else weight for name, weight in read_state(file).items()}
    write_state(file, moved)
    second = reevaluate.evaluate(str(copy), Wishes())
    assert second.folder != first.folder
    assert second.metrics["test/nll"] != first.metrics["test/nll"]


def test_nothing_is_overwritten_and_the_same_again_is_not_computed(full: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = reevaluate.evaluate(str(full), Wishes(overrides=("evaluation.limit=3",)))
    file = first.folder / "evaluation.json"
    before = file.read_bytes(), file.stat().st_mtime_ns
    monkeypatch.setattr("lossbench.evaluation.evaluate.evaluate", None)
    again = reevaluate.evaluate(str(full), Wishes(overrides=("evaluation.limit=3",)))
    assert not again.is_new
    assert again.folder == first.folder
    assert again.metrics == first.metrics
    assert (file.read_bytes(), file.stat().st_mtime_ns) == before


def test_another_split_and_dataset_have_their_own_evaluations(full: Path) -> None:
    validation = reevaluate.evaluate(str(full), Wishes(overrides=("evaluation.split=validation",)))
    prose = reevaluate.evaluate(str(full), Wishes(overrides=("dataset=pydocs", "evaluation.limit=2")))
    assert "val/nll" in validation.metrics
    assert prose.metrics["data/n_test"] == 2
    facts = stored.read(prose.folder)["facts"]  # type: ignore[index]
    assert facts["dataset"]["task"] == "pydocs"
    assert facts["n_examples"] == 2
    expected = {"model", "checkpoint", "dataset", "evaluation", "metrics", "examples", "tokens", "versions", "padding"}
    assert expected <= set(facts)


def test_an_untrained_model_becomes_a_row_of_the_report(runs: Path) -> None:
    found = reevaluate.evaluate("lossbench:tiny", Wishes(overrides=(f"paths.runs={runs}", "study=base", *QUICK)))
    (record,) = collect([runs / "base"]).records
    assert (record.loss, record.model, record.dataset, str(record.state)) == (
        "untrained",
        "tiny",
        "arithmetic",
        "finished",
    )
    assert record.metrics["test/nll"] == found.metrics["test/nll"]
    folder = found.folder.parents[1]
    more = reevaluate.evaluate(str(folder), Wishes(overrides=("evaluation.limit=2",)))
    assert more.folder.parent == found.folder.parent
    assert metrics_of(folder)["test/nll"] == found.metrics["test/nll"]


def test_a_generating_evaluation_can_be_recomputed_by_the_command_line(runs: Path) -> None:
    arguments = ("dataset.test_examples=4", "evaluation.max_new_tokens=24", *QUICK, "evaluation.generate=true")
    output = CliRunner().invoke(
        app, ["evaluate", "lossbench:tiny", f"paths.runs={runs}", "study=cli", *arguments, "--json"]
    )
    assert output.exit_code == 0, output.output
    made = json.loads(output.stdout)
    assert made["new"]
    assert {"test/em", "test/confidence/ece", "test/text/rep_4", "test/steps/iou"} <= set(made["metrics"])
    folder = Path(made["folder"]).parents[1]
    proof = CliRunner().invoke(app, ["evaluate", str(folder), "--recompute"])
    assert proof.exit_code == 0, proof.output
    assert proof.output.count("numbers are those of the rows") == 2

    result = folder / "result.json"
    changed = json.loads(result.read_text())
    changed["metrics"]["test/nll"] += 1e-9
    result.write_text(json.dumps(changed))
    proof = CliRunner().invoke(app, ["evaluate", str(folder), "--recompute"])
    assert proof.exit_code == 1
    assert "test/nll: stored" in proof.output


def test_the_numbers_of_a_training_run_can_be_recomputed(full: Path) -> None:
    compared = stored.recompute(full)
    assert compared
    assert all(part.ok for part in compared), "\n".join(map(str, compared))


@pytest.mark.parametrize("override", ["model.dtype=bfloat16", "loss=focal", "evaluation", "evaluation=other", "seed=3"])
def test_what_made_a_run_cannot_be_changed_afterwards(full: Path, override: str) -> None:
    with pytest.raises(ConfigError, match="cannot change a run that is trained"):
        reevaluate.find(str(full), [override])


def test_unknown_keys_and_models_are_said(full: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"Unknown key evaluation\.limt"):
        reevaluate.find(str(full), ["evaluation.limt=3"])
    with pytest.raises(ConfigError, match="Unknown key"):
        reevaluate.find("lossbench:tiny", ["evaluation.limt=3"])


def test_an_unfinished_run_is_refused(full: Path, tmp_path: Path) -> None:
    copy = tmp_path / "unfinished"
    shutil.copytree(full, copy)
    (copy / "result.json").unlink()
    with pytest.raises(DataError, match="has not finished, so it has no best checkpoint yet"):
        reevaluate.find(str(copy))
    shutil.copy(full / "result.json", copy)
    shutil.rmtree(copy / "checkpoints")
    with pytest.raises(DataError, match="the run's weights were removed"):
        reevaluate.find(str(copy))


def test_a_safe_point_to_go_on_from_is_no_model(full: Path) -> None:
    with pytest.raises(ConfigError, match="is a safe point to train on from, not a model to evaluate"):
        reevaluate.find(str(full / "checkpoints" / "last.safetensors"))


def test_an_older_run_has_the_present_defaults_where_it_names_none(full: Path, tmp_path: Path) -> None:
    copy = tmp_path / full.name
    shutil.copytree(full, copy)
    plain = yaml.safe_load((copy / "config.yaml").read_text())
    for key in ("samples", "mauve", "rolling"):
        del plain["evaluation"][key]
    for section, key in (("model", "compile"), ("optimizer", "momentum"), ("trainer", "devices"), ("tracking", "name")):
        del plain[section][key]
    (copy / "config.yaml").write_text(yaml.safe_dump(plain))
    found = reevaluate.find(str(copy), ["evaluation.mauve.tokens=9"]).config.evaluation
    assert (found.samples, found.limit) == (0, 6)
    assert found.mauve is not None
    assert (found.mauve.tokens, found.mauve.generation_seeds) == (9, 5)


def test_the_harness_is_asked_for_before_the_model_is_loaded(full: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "lm_eval", None)
    with pytest.raises(ConfigError, match="--harness needs lm-evaluation-harness"):
        reevaluate.evaluate(str(full), Wishes(harness=("gsm8k",)))
