import json
import os
import pty
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from lossbench.config import TrackingConfig
from lossbench.report.sources import wandb_log
from lossbench.tracking import wandb_run
from lossbench.tracking.wandb_run import WandbRun

OFFLINE = TrackingConfig(name="wandb", mode="offline", project="lossbench", entity=None)
RUN = {"id": "0123456789abcdef", "name": "focal-s0", "group": "g", "study": "s", "config": {"lr": 1e-3}, "host": "h"}


def inspect(log: Path) -> dict:
    """What wandb's own reader says of an offline log."""
    command = [sys.executable, "-m", "wandb", "leet", "inspect", "--summary", "--json", str(log)]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True, cwd=log.parent).stdout)


@pytest.mark.parametrize(("status", "state"), [("finished", "finished"), ("failed", "failed")])
def test_an_offline_log_is_complete_and_tells_the_truth(tmp_path: Path, status: str, state: str):
    run = WandbRun.open(OFFLINE, RUN, tmp_path)
    where = run.where()["wandb"]
    assert (where["mode"], where["url"]) == ("offline", None)
    run.log(1, {"train/loss": 2.0})
    run.summarize({"test/em": 0.5})
    run.close(status)
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
        run.log(1, {"x": 1})
        run.close("finished")
        assert len(list(folder.glob("wandb/offline-run-*/*.wandb"))) == 1


def test_a_dead_wandb_warns_once_and_never_raises():
    class Dead:
        offline = True

        def log(self, values: object) -> None:
            raise ConnectionResetError("gone")

    run = WandbRun(Dead())
    run.log(1, {"x": 1})
    run.log(2, {"x": 2})
    with pytest.warns(UserWarning, match=r"wandb failed to log \(ConnectionResetError: gone\); the run goes on"):
        run.close("finished")


def test_a_wandb_that_hangs_at_the_end_is_left_alone(monkeypatch: pytest.MonkeyPatch):
    release = threading.Event()

    class Hanging:
        offline = True

        def log(self, values: object) -> None:
            release.wait()

    monkeypatch.setattr(wandb_run, "FINISH_SECONDS", 0.05)
    monkeypatch.setattr(wandb_run, "GRACE", 0.0)
    ended = []
    monkeypatch.setattr(wandb_run, "end_service", lambda: ended.append(True))
    run = WandbRun(Hanging())
    run.log(1, {"x": 1})
    with pytest.warns(UserWarning, match="wandb failed to finish .it hangs"):
        run.close("finished")
    release.set()
    assert ended == [True]


def test_a_wandb_that_hangs_at_the_start_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    release = threading.Event()
    monkeypatch.setattr(wandb_run, "INIT_SECONDS", 0.05)
    monkeypatch.setattr(wandb_run, "GRACE", 0.0)
    monkeypatch.setattr(wandb_run, "end_service", lambda: None)
    monkeypatch.setattr(wandb_run, "_init", lambda *arguments: release.wait())  # as the prompt for a key does
    with pytest.warns(UserWarning, match="wandb failed to start .*no answer within"):
        run = WandbRun.open(OFFLINE, RUN, tmp_path)
    run.log(1, {"x": 1})
    run.close("finished")
    release.set()


def test_a_wandb_that_cannot_write_its_folder_is_one_warning(tmp_path: Path):
    folder = tmp_path / "file"
    folder.write_text("in the way of a folder")
    with pytest.warns(UserWarning, match="wandb failed to start .*the run goes on"):
        run = WandbRun.open(OFFLINE, RUN, folder)
    run.log(1, {"x": 1})
    run.summarize({"x": 1})
    run.close("finished")
    assert run.where() == {"wandb": None}


KILLED = """
import sys, time
from pathlib import Path
from lossbench.config import TrackingConfig
from lossbench.tracking.wandb_run import WandbRun
run = {"id": "0123456789abcdef", "name": "n", "group": "g", "study": "s", "config": {}}
tracked = WandbRun.open(TrackingConfig(name="wandb", mode="offline", project="p", entity=None), run, Path(sys.argv[1]))
for step in range(10_000):
    tracked.log(step, {"train/loss": 1.0})
    print(step, flush=True)
    time.sleep(0.05)
"""


@pytest.mark.slow
def test_a_killed_process_loses_little_of_its_log(tmp_path: Path):
    with subprocess.Popen([sys.executable, "-c", KILLED, str(tmp_path)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if int(line) >= 100:  # five seconds; wandb alone would have written nothing yet
                process.kill()
                break
    (record,) = wandb_log.read(str(tmp_path), time.time()).records
    assert record.id == "0123456789abcdef"
    steps = [step for step, _ in record.read_history(("train/loss",)).series["train/loss"]]
    assert steps == list(range(len(steps)))
    assert len(steps) > 50


KEYLESS = """
import sys
from pathlib import Path
from lossbench.config import TrackingConfig
from lossbench.tracking.wandb_run import WandbRun
run = {"id": "0123456789abcdef", "name": "n", "group": "g", "study": "s", "config": {}}
tracked = WandbRun.open(TrackingConfig(name="wandb", mode="online", project="p", entity=None), run, Path(sys.argv[1]))
tracked.close("finished")
print(tracked.where())
"""


@pytest.mark.slow
def test_nobody_is_asked_for_a_key_at_a_terminal(tmp_path: Path):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("WANDB_")}
    environment |= {"HOME": str(tmp_path), "WANDB_BASE_URL": "http://127.0.0.1:9", "TERM": "xterm"}
    master, terminal = pty.openpty()
    try:
        command = [sys.executable, "-c", KEYLESS, str(tmp_path)]
        done = subprocess.run(
            command, stdin=terminal, stderr=terminal, stdout=subprocess.PIPE, env=environment, timeout=120, text=True
        )
    finally:
        os.close(terminal)
        os.close(master)
    assert (done.returncode, done.stdout.strip()) == (0, "{'wandb': None}")
