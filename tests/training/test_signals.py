"""Real processes, real signals: a run that is stopped and started again leaves the record of one that was not."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch
import yaml
from safetensors.torch import load_file

from lossbench import app
from lossbench.config import RunConfig
from lossbench.run import run

SMALL = (
    "trainer.max_steps=40",
    "trainer.accumulate=2",
    "trainer.batch_size=2",
    "trainer.validate_every=10",
    "trainer.checkpoint_every=4",
    "trainer.log_every=1",
    "trainer.accelerator=cpu",
    "trainer.threads=1",
    "dataset.train_examples=60",
    "dataset.validation_examples=4",
    "dataset.test_examples=4",
    "evaluation.max_new_tokens=8",
    "tracking.mode=disabled",
    "loss=ce_focal",
)


def settings(runs: Path, *overrides: str) -> RunConfig:
    return app.compose(f"paths.runs={runs}", *SMALL, *overrides)


def stopped(config: RunConfig, file: Path, signum: int, *, group: bool) -> int:
    """Start a run as a sweep does, send it a signal once step 6 is logged, and return its exit code."""
    file.write_text(yaml.safe_dump(config.model_dump(mode="json")))
    process = subprocess.Popen([sys.executable, "-m", "lossbench.run", str(file)], start_new_session=True)
    try:
        until = time.monotonic() + 300
        while not any('"step": 6' in log.read_text() for log in Path(config.paths.runs).glob("*/*/metrics.jsonl")):
            assert process.poll() is None and time.monotonic() < until
            time.sleep(0.01)
        (os.killpg if group else os.kill)(process.pid, signum)
        return process.wait(timeout=120)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def lines(folder: Path) -> list[dict]:
    """metrics.jsonl without what a clock said."""
    found = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in line.items() if k != "time" and not k.startswith("perf/")} for line in found]


def metrics(folder: Path) -> dict[str, float]:
    found = json.loads((folder / "result.json").read_text())["metrics"]
    return {k: v for k, v in found.items() if not k.startswith(("time/", "perf/"))}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run(settings(tmp_path_factory.mktemp("whole")))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("signum", "code", "workers", "group"),
    [
        (signal.SIGTERM, 143, 0, False),
        (signal.SIGUSR2, 140, 0, False),
        (signal.SIGINT, 130, 2, True),  # as a terminal does, to the loader's processes too
        (signal.SIGKILL, -9, 0, True),
    ],
)
def test_a_stopped_run_goes_on_as_if_it_had_not_been(
    tmp_path: Path, whole: Path, signum: int, code: int, workers: int, group: bool
):
    config = settings(tmp_path / "runs", f"trainer.loader_workers={workers}")
    assert stopped(config, tmp_path / "job.yaml", signum, group=group) == code
    (folder,) = (tmp_path / "runs" / "default").iterdir()
    if signum == signal.SIGKILL:
        assert not (folder / "result.json").exists()
    else:
        assert json.loads((folder / "result.json").read_text())["status"] == "interrupted"
    assert not (folder / "examples.parquet").exists()

    assert run(config) == folder
    assert json.loads((folder / "result.json").read_text())["status"] == "finished"
    assert lines(folder) == lines(whole)
    assert metrics(folder) == metrics(whole)
    ours, theirs = (load_file(f / "checkpoints" / "best.safetensors") for f in (folder, whole))
    assert ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)
    tables = [pq.read_table(f / "examples.parquet").to_pylist() for f in (folder, whole)]
    assert tables[0] == tables[1]
    assert [file.name for file in (folder / "checkpoints").iterdir()] == ["best.safetensors"]
    assert json.loads((folder / "run.json").read_text())["attempt"] == 2


@pytest.mark.slow
def test_a_run_on_two_devices_is_stopped_as_one_and_gives_the_same(tmp_path: Path, whole: Path):
    config = settings(tmp_path / "runs", "trainer.devices=2")
    assert stopped(config, tmp_path / "job.yaml", signal.SIGTERM, group=False) == 143  # rank 0 alone gets it
    ended = subprocess.run(
        [sys.executable, "-m", "lossbench.run", str(tmp_path / "job.yaml")], timeout=300, check=False
    )
    assert ended.returncode == 0
    (folder,) = (tmp_path / "runs" / "default").iterdir()
    ours, theirs = (load_file(f / "checkpoints" / "best.safetensors") for f in (folder, whole))
    for name, weight in theirs.items():
        torch.testing.assert_close(ours[name], weight, rtol=1e-5, atol=1e-5)
    for line, expected in zip(lines(folder), lines(whole), strict=True):
        assert line == pytest.approx(expected, rel=1e-4, abs=1e-5)
