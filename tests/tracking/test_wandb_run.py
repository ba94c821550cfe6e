import json
import subprocess
import sys
from pathlib import Path

import pytest

from lossbench.config import TrackingConfig
from lossbench.tracking.wandb_run import WandbRun, redacted

OFFLINE = TrackingConfig(mode="offline", project="lossbench", entity=None)
RUN = {"id": "0123456789abcdef", "name": "focal-s0", "group": "g", "study": "s", "config": {"lr": 1e-3}, "host": "h"}


def inspect(log: Path) -> dict:
    """What wandb's own reader says of an offline log."""
    command = [sys.executable, "-m", "wandb", "leet", "inspect", "--summary", "--json", str(log)]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True, cwd=log.parent).stdout)


@pytest.mark.parametrize(("exit_code", "state"), [(0, "finished"), (1, "failed")])
def test_an_offline_log_is_complete_and_tells_the_truth(tmp_path: Path, exit_code: int, state: str):
    run = WandbRun.open(OFFLINE, RUN, tmp_path)
    where = run.where()
    assert where is not None
    assert where["mode"] == "offline"
    run.log({"train/loss": 2.0, "trainer/global_step": 1})
    run.summarize({"test/em": 0.5})
    run.close(exit_code)
    (log,) = tmp_path.glob("wandb/offline-run-*/*.wandb")
    found = inspect(log)
    assert (found["state"], found["run_id"]) == (state, RUN["id"])
    assert found["summary"]["test/em"] == 0.5
    assert found["config"]["config"]["lr"] == 1e-3


def test_two_runs_of_one_process_are_two_runs(tmp_path: Path):
    for number in ("a", "b"):
        folder = tmp_path / number
        folder.mkdir()
        run = WandbRun.open(OFFLINE, {**RUN, "id": number * 16}, folder)
        run.log({"x": 1})
        run.close(0)
        assert len(list(folder.glob("wandb/offline-run-*/*.wandb"))) == 1


def test_disabled_tracking_leaves_nothing(tmp_path: Path):
    run = WandbRun.open(OFFLINE.model_copy(update={"mode": "disabled"}), RUN, tmp_path)
    run.log({"x": 1})
    run.close(0)
    assert run.where() is None
    assert not list(tmp_path.iterdir())


def test_a_dead_wandb_warns_once_and_never_raises():
    class Dead:
        offline = True

        def log(self, values: object) -> None:
            raise ConnectionResetError("gone")

    run = WandbRun(Dead())
    with pytest.warns(UserWarning, match=r"wandb failed to log \(ConnectionResetError: gone\); the run goes on"):
        run.log({"x": 1})
    run.log({"x": 2})
    run.close(0)


def test_secrets_never_reach_wandb():
    config = {"hub_token": "hf_x", "api-key": "k", "tokenizer": "gpt2", "deep": [{"password": "p", "lr": 0.1}]}
    assert redacted(config) == {
        "hub_token": "***",
        "api-key": "***",
        "tokenizer": "gpt2",
        "deep": [{"password": "***", "lr": 0.1}],
    }
