"""Whole runs, small ones."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from lossbench import app
from lossbench.config import RunConfig
from lossbench.errors import ConfigError, DataError, DivergedError, ModelError
from lossbench.report.build import build
from lossbench.run import run
from tests.real_data import real_data

SMALL = (
    "trainer.max_steps=3",
    "trainer.batch_size=4",
    "trainer.validate_every=2",
    "trainer.log_every=1",
    "dataset.train_examples=30",
    "dataset.validation_examples=4",
    "dataset.test_examples=4",
    "evaluation.max_new_tokens=8",
    "tracking.mode=disabled",
)


def small(tmp_path: Path, *overrides: str) -> RunConfig:
    return app.compose(f"paths.runs={tmp_path}", *SMALL, *overrides)


def result(folder: Path) -> dict:
    return json.loads((folder / "result.json").read_text())


def lines(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def numbers(line: dict) -> dict:
    """A line of metrics.jsonl without what a clock said."""
    return {name: value for name, value in line.items() if name != "time" and not name.startswith("perf/")}


def test_a_run_leaves_a_complete_record(tmp_path: Path):
    folder = run(small(tmp_path, "loss=ce_focal"))
    found = result(folder)
    assert found["status"] == "finished"
    assert {"test/em", "test/em_strict", "test/em_flexible", "test/nll", "test/ppl", "val/nll"} <= set(found["metrics"])
    assert found["checkpoint"]["criterion"] == "val/nll"
    validation = {line["step"]: line["val/nll"] for line in lines(folder) if "val/nll" in line}
    assert sorted(validation) == [0, 2, 3]
    assert found["metrics"]["val/nll"] == min(validation.values()) == validation[found["checkpoint"]["step"]]
    training = [line for line in lines(folder) if "train/loss" in line]
    assert [line["step"] for line in training] == [1, 2, 3]
    for line in training:  # the paper's mixture: 0.6 cross-entropy on the sequence, 0.4 focal on the answer
        terms = 0.6 * line["train/term/cross_entropy"] + 0.4 * line["train/term/focal"]
        assert line["train/loss"] == pytest.approx(terms, rel=1e-5)
        assert line["train/cross_entropy"] != line["train/term/cross_entropy"]  # on the answer, on the sequence
    rows = pq.read_table(folder / "examples.parquet").to_pylist()
    assert len(rows) == 4
    assert {"id", "prompt", "completion", "gold", "em", "em_strict", "em_flexible", "nll_sum", "n_tokens"} <= set(
        rows[0]
    )
    assert found["metrics"]["test/nll"] == pytest.approx(
        sum(row["nll_sum"] for row in rows) / sum(row["n_tokens"] for row in rows)
    )


def test_the_same_command_gives_the_same_numbers_and_is_not_run_twice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    first = run(small(tmp_path / "a"))
    again = run(small(tmp_path / "b"))
    values = [[numbers(line) for line in lines(folder)] for folder in (first, again)]
    assert values[0] == values[1]
    before = (first / "result.json").read_bytes()
    assert run(small(tmp_path / "a")) == first
    assert "is finished already" in capsys.readouterr().out
    assert (first / "result.json").read_bytes() == before


def test_lora_trains_and_generates(tmp_path: Path):
    folder = run(small(tmp_path, "peft=lora", "optimizer.lr=0.01"))
    values = [line["val/nll"] for line in lines(folder) if "val/nll" in line]
    assert values[-1] < values[0]


def test_language_modelling_has_a_perplexity_and_no_exact_match(tmp_path: Path):
    config = app.compose(
        f"paths.runs={tmp_path}", "dataset=pydocs", "trainer.max_steps=1", "trainer.batch_size=2", "evaluation.limit=3",
        "evaluation.validation_limit=2", "tracking.mode=disabled",
    )  # fmt: skip
    metrics = result(run(config))["metrics"]
    assert metrics["test/ppl"] > 1
    assert "test/em" not in metrics


def test_divergence_names_the_step_and_the_examples(tmp_path: Path):
    with pytest.raises(DivergedError) as caught:
        run(small(tmp_path, "optimizer.lr=1e30", "trainer.gradient_clip=0"))
    assert "at optimizer step 2, after the examples arithmetic-hard-0-train-" in str(caught.value)
    (folder,) = (tmp_path / "default").iterdir()
    assert (result(folder)["status"], result(folder)["error"]["type"]) == ("failed", "DivergedError")


@pytest.mark.parametrize(
    ("override", "error", "sentence"),
    [
        ("+loss.terms.focal.gama=2", ConfigError, r"no parameter 'gama'.*'gamma'"),
        ("loss.terms.focal.gamma=-1", ConfigError, r"gamma"),
        ("dataset.task=gsm", ConfigError, r"dataset\.task='gsm' is no task"),
        ("model.path=lossbench:huge", ModelError, r"no model 'huge'"),
    ],
)
def test_what_cannot_work_is_said_before_a_folder_is_made(
    tmp_path: Path, override: str, error: type[Exception], sentence: str
):
    with pytest.raises(error, match=sentence):
        run(small(tmp_path, "loss=focal", override))
    assert not list(tmp_path.iterdir())


def test_a_target_longer_than_the_window_stops_before_training(tmp_path: Path):
    with pytest.raises(DataError, match=r"its target alone is \d+ tokens long, but .* must fit into 10"):
        run(small(tmp_path, "dataset.max_length=10"))
    (folder,) = (tmp_path / "default").iterdir()
    assert not (folder / "metrics.jsonl").read_text()


def test_gsm8k_and_a_real_model_train_evaluate_and_report(tmp_path: Path):
    data, model = real_data("datasets/gsm8k"), real_data("models/stories260K")
    config = app.compose(
        f"paths.runs={tmp_path}", "dataset=gsm8k", f"dataset.path={data}", "model=hf", f"model.path={model}",
        "model.name=stories260K", "optimizer.lr=2e-3", "dataset.limit=160", "trainer.max_steps=12",
        "trainer.batch_size=8", "evaluation.limit=16", "evaluation.validation_limit=16", "evaluation.max_new_tokens=48",
    )  # fmt: skip
    folder = run(config)
    metrics = result(folder)["metrics"]
    values = [line["val/nll"] for line in lines(folder) if "val/nll" in line]
    assert values[-1] < values[0] - 0.3
    assert metrics["data/n_test"] == 16
    assert list(folder.glob("wandb/offline-run-*/*.wandb"))
    build([tmp_path], tmp_path / "report")
    page = (tmp_path / "report" / "report.html").read_text()
    assert "stories260K" in page
    assert f"{metrics['test/ppl']:.2f}" in page
    assert {row["id"] for row in pq.read_table(folder / "examples.parquet").to_pylist()} == {
        f"gsm8k-test-{i}" for i in range(16)
    }
