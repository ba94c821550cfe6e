"""The real client of wandb, online, against a server on loopback. Every process of wandb costs a second or two."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lossbench import app, tracking
from lossbench.config import RunConfig
from lossbench.identity import identify
from lossbench.report.records import State
from lossbench.report.sources import wandb_api, wandb_log
from lossbench.tracking import wandb_run
from tests.wandb_server import StoredRun, WandbServer

RESULTS = {"test/em": 0.5, "val/nll": 0.25}


@pytest.fixture(autouse=True)
def _a_client_of_its_own(server: WandbServer) -> Iterator[None]:
    import wandb

    wandb.teardown()  # a client that an earlier test set to another server
    yield
    wandb.teardown()


def configured(root: Path, mode: str, *overrides: str) -> RunConfig:
    return app.compose(f"paths.runs={root}", f"tracking.mode={mode}", "tracking.project=study", *overrides)


def do(config: RunConfig, first: int, last: int, ends: BaseException | None = None) -> Path:
    """An attempt that logs some steps, and ends well or with an exception."""
    try:
        with tracking.open_run(config) as run:
            for step in range(first, last + 1):
                run.log(step, {"train/loss": 2.0 / step})
            if ends:
                raise ends
            run.finish(RESULTS, {"step": last, "criterion": "val/nll", "value": 0.25})
    except BaseException as error:
        if error is not ends:
            raise
    return run.folder


def stored(server: WandbServer) -> StoredRun:
    (run,) = server.store.runs.values()
    return run


def steps(run: StoredRun) -> list[int]:
    return [row["trainer/global_step"] for row in run.rows()]


def test_an_online_run_is_on_the_server_as_it_is_in_its_record(server: WandbServer, tmp_path: Path):
    config = configured(tmp_path, "online")
    folder = do(config, 1, 5)
    identity, run = identify(config), stored(server)
    assert (run.name, run.group, run.job_type, run.tags) == (identity.id, identity.group, "train", [config.study])
    assert (run.state, run.exit_code, steps(run)) == ("finished", 0, [1, 2, 3, 4, 5])
    assert run.plain_config()["config"]["optimizer"]["lr"] == config.optimizer.lr
    assert {key: json.loads(run.summary)[key] for key in RESULTS} == RESULTS
    where = json.loads((folder / "run.json").read_text())["wandb"]
    assert (where["mode"], where["url"]) == ("online", f"{server.url}/team/study/runs/{identity.id}")
    assert server.unknown == []

    (record,) = wandb_api.read("wandb:team/study", time.time()).records
    assert (record.id, record.group, record.loss, record.seed) == (identity.id, identity.group, "cross_entropy", 0)
    assert (record.state, record.metrics, record.last_step) == (State.FINISHED, RESULTS, 5)


def test_a_run_that_is_resumed_goes_on_under_its_id(server: WandbServer, tmp_path: Path):
    config = configured(tmp_path, "online")
    do(config, 1, 4, ends=SystemExit(143))
    assert (stored(server).state, stored(server).exit_code) == ("preempted", 143)
    assert server.count("RunResumeStatus") == 1
    do(config, 3, 6)
    run = stored(server)
    assert (run.state, steps(run)) == ("finished", [1, 2, 3, 4, 3, 4, 5, 6])
    assert [row["_step"] for row in run.rows()] == list(range(8))
    assert run.plain_config()["attempt"] == 2


def test_a_failed_run_is_failed_though_its_launcher_catches_the_exception(server: WandbServer, tmp_path: Path):
    for seed, ends in ((0, None), (1, ValueError("no")), (2, None)):  # as jobs of one process
        do(configured(tmp_path, "online", f"seed={seed}"), 1, 2, ends)
    states = {run.plain_config()["seed"]: (run.state, run.exit_code) for run in server.store.runs.values()}
    assert states == {0: ("finished", 0), 1: ("failed", 1), 2: ("finished", 0)}


@pytest.mark.slow
def test_faults_of_the_service_cost_no_row(server: WandbServer, tmp_path: Path):
    server.fail("file_stream", status=500)
    server.fail("file_stream", status=429, headers={"Retry-After": "1"})
    server.fail("UpsertBucket", drop=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        do(configured(tmp_path, "online"), 1, 3)
    assert (stored(server).state, steps(stored(server))) == ("finished", [1, 2, 3])


@pytest.mark.parametrize(("mode", "sentence"), [("auto", "logs offline instead"), ("online", "failed to start")])
def test_a_service_that_is_away_stops_no_run(
    server: WandbServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    mode: str,
    sentence: str,
):
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")  # the port that discards
    monkeypatch.setitem(wandb_run.SETTINGS, "init_timeout", 3)
    with pytest.warns(UserWarning, match=sentence) as warned:
        folder = do(configured(tmp_path, mode), 1, 3)
    assert len([w for w in warned if "wandb" in str(w.message)]) == 1
    assert json.loads((folder / "result.json").read_text())["metrics"] == RESULTS
    found = wandb_log.read(str(folder), time.time()).records
    assert [record.metrics for record in found if record.state is State.FINISHED] == (
        [RESULTS] if mode == "auto" else []
    )


def test_a_wrong_key_stops_no_run(server: WandbServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("WANDB_API_KEY", "1" * 40)
    with pytest.warns(UserWarning, match="logs offline instead") as warned:
        folder = do(configured(tmp_path, "auto"), 1, 2)
    (warning,) = [str(w.message) for w in warned if "wandb" in str(w.message)]
    assert "1" * 40 not in warning
    assert json.loads((folder / "run.json").read_text())["wandb"]["mode"] == "offline"


def test_a_service_that_dies_in_the_middle_leaves_a_whole_log(
    server: WandbServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setitem(wandb_run.SETTINGS, "finish_timeout", 2)
    server.fail("file_stream", status=503, times=100_000)
    folder = do(configured(tmp_path, "online"), 1, 3)
    (record,) = wandb_log.read(str(folder), time.time()).records
    assert record.metrics == RESULTS
    assert [step for step, _ in record.read_history(("train/loss",)).series["train/loss"]] == [1, 2, 3]


def wandb_core() -> int:
    """The process of wandb that belongs to this one."""
    from wandb.sdk import wandb_setup

    connection: Any = wandb_setup.singleton()._connection
    return int(connection._proc._process.pid)


@pytest.mark.parametrize("signal", ["SIGKILL", "SIGSTOP"])
def test_a_wandb_process_that_dies_or_hangs_stops_neither_this_run_nor_the_next(
    server: WandbServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    signal: str,
):
    import signal as signals

    monkeypatch.setattr(wandb_run, "FINISH_SECONDS", 1.0)
    monkeypatch.setattr(wandb_run, "GRACE", 1.0)
    config = configured(tmp_path, "offline")
    with (
        pytest.warns(UserWarning, match=r"wandb failed to (log|finish).*the run goes on") as warned,
        tracking.open_run(config) as run,
    ):
        run.log(1, {"train/loss": 2.0})
        os.kill(wandb_core(), getattr(signals, signal))
        for step in range(2, 3000):
            run.log(step, {f"train/{name}": 1.0 for name in range(20)})
        run.finish(RESULTS, {"step": 1, "criterion": "val/nll", "value": 0.25})
    assert len([w for w in warned if "failed" in str(w.message)]) == 1
    assert json.loads((run.folder / "result.json").read_text())["status"] == "finished"

    folder = do(configured(tmp_path, "offline", "seed=1"), 1, 2)
    (record,) = wandb_log.read(str(folder), time.time()).records
    assert (record.state, record.metrics) == (State.FINISHED, RESULTS)


@pytest.mark.slow
def test_attempts_that_were_offline_are_one_run_after_sync(server: WandbServer, tmp_path: Path):
    config = configured(tmp_path, "offline")
    do(config, 1, 4, ends=SystemExit(143))
    folder = do(config, 3, 6)
    logs = sorted(str(log) for log in (folder / "wandb").glob("offline-run-*"))
    assert len(logs) == 2
    command = [sys.executable, "-m", "wandb", "sync", "--entity", "team", "--project", "study", *logs]
    subprocess.run(command, check=True, capture_output=True, timeout=120, cwd=tmp_path)
    run = stored(server)
    assert (run.name, run.state, steps(run)) == (identify(config).id, "finished", [1, 2, 3, 4, 3, 4, 5, 6])
    assert {key: json.loads(run.summary)[key] for key in RESULTS} == RESULTS
