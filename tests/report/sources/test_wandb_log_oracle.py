"""Our reader of wandb's logs against wandb's own, `wandb leet inspect`, on logs that wandb wrote."""

from __future__ import annotations

import json
import random
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from lossbench.config import TrackingConfig
from lossbench.report.records import State
from lossbench.report.sources import wandb_log
from lossbench.report.sources._wandb_log import read_log, read_rows
from lossbench.tracking.wandb_run import WandbRun
from tests.report.sources.test_wandb_log import mutated

OFFLINE = TrackingConfig(name="wandb", mode="offline", project="lossbench", entity=None)
RUN = {
    "id": "0123456789abcdef", "name": "focal-s0", "group": "g", "study": "demo", "loss": "focal", "model": "tiny",
    "dataset": "arithmetic", "seed": 0, "attempt": 1, "config": {"optimizer": {"lr": 1e-3, "betas": [0.9, 0.999]}},
}  # fmt: skip
KEYS = ("train/loss", "val/nll")


def inspect(log: Path, *options: str) -> str:
    """What wandb's own reader prints; its binary is called by itself, since Python's start takes a second."""
    util = pytest.importorskip("wandb.util", reason="wandb is not installed")
    try:
        command = [util.get_core_path(), "leet", "inspect", "--no-observability", *options, "--json"]
        done = subprocess.run([*command, "--run-file", str(log), str(log.parent)], capture_output=True, timeout=60)
    except (OSError, AttributeError) as error:
        pytest.skip(f"this wandb has no reader of logs to compare with: {error}")
    if done.returncode and b"unknown" in done.stderr:
        pytest.skip(f"this wandb has no `leet inspect`: {done.stderr.decode()[:200]}")
    return done.stdout.decode()


def rows_of_wandb(log: Path) -> list[tuple[int, dict[str, float]]]:
    rows = []
    for line in inspect(log).splitlines():
        record = json.loads(line)
        if record["type"] == "history":
            item = record["history"]["item"]
            values = {key: float(item[key]) for key in KEYS if item.get(key) is not None}
            step = item.get("trainer/global_step", record["history"]["step"]["num"])
            rows += [(int(step), values)] if values else []
    return rows


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log of several blocks, with a record that is longer than one."""
    folder = tmp_path_factory.mktemp("run")
    run = WandbRun.open(OFFLINE, {**RUN, "note": "ö" * 40_000}, folder)
    for step in range(1, 251):
        run.log(step, {"train/loss": 2.0 / step, **{f"train/x{i}": i / 7 for i in range(20)}})
        if step % 50 == 0:
            run.log(step, {"val/nll": 1.0 / step})
    run.summarize({"test/em": 0.5, "test/ppl": float("inf"), "val/nll": 0.004})
    run.close("finished")
    (found,) = folder.glob("wandb/offline-run-*/run-*.wandb")
    assert found.stat().st_size > 5 * 32768
    return found


def test_identity_configuration_and_summary_are_those_that_wandb_reads(log: Path):
    theirs: dict[str, Any] = json.loads(inspect(log, "--summary"))
    ours = read_log(log)
    assert (ours.id, ours.project, ours.name, ours.tags) == (
        theirs["run_id"], theirs["project"], theirs["name"], theirs["tags"],
    )  # fmt: skip
    assert {key: value for key, value in ours.config.items() if key != "_wandb"} == theirs["config"]
    assert {key: value for key, value in ours.summary.items() if not key.startswith("_")} == {
        key: value for key, value in theirs["summary"].items() if not key.startswith("_")
    }
    assert (ours.exit_code, ours.damage) == (theirs["exit_code"], [])
    (record,) = wandb_log.read(str(log.parent), time.time()).records
    assert record.state is State(theirs["state"])
    assert record.metrics == {"test/em": 0.5, "test/ppl": float("inf"), "val/nll": 0.004}


def test_rows_are_those_that_wandb_reads(log: Path):
    ours = read_rows(read_log(log), KEYS)
    assert len(ours) == 255
    assert ours == rows_of_wandb(log)


def test_of_a_damaged_log_the_same_rows_are_left(log: Path, tmp_path: Path):
    data = log.read_bytes()
    lost = 0
    for seed in range(25):
        damaged = tmp_path / f"{seed}" / log.name
        damaged.parent.mkdir()
        damaged.write_bytes(mutated(data, random.Random(seed)))
        ours = read_rows(read_log(damaged), KEYS)
        assert ours == rows_of_wandb(damaged), seed
        lost += 255 - len(ours)
    assert lost > 255  # the damage was real
