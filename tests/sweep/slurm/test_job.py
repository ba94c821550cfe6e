"""The supervisor inside a job, with stand-ins for the run's process and without a cluster."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from lossbench.sweep import attempts
from lossbench.sweep.slurm import job
from lossbench.sweep.slurm.job import AGAIN, FENCED, STOPPED, Supervisor, Task
from lossbench.tracking import lease

ENVIRONMENT = {"SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "1", "SLURM_JOB_ID": "9"}
RUN = """
import json, pathlib, signal, sys, time
folder = pathlib.Path(sys.argv[1])
def end(status, code):
    (folder / "result.json").write_text(json.dumps({"status": status}))
    sys.exit(code)
def on_signal(signum, frame):
    with (folder / "metrics.jsonl").open("a") as log:
        log.write(json.dumps({"step": STEP}) + "\\n")
    end("interrupted", 128 + signum)
for signum in (signal.SIGUSR2, signal.SIGTERM):
    signal.signal(signum, on_signal)
(folder / "ready").touch()
"""


class StandIn(Supervisor):
    """Runs a few lines of Python in place of lossbench.run."""

    def __init__(self, manifest: Path, code: str, step: int = 1) -> None:
        super().__init__(manifest, Task.of(ENVIRONMENT))
        self.code = RUN.replace("STEP", str(step)) + code
        self.starts = 0

    def _start(self, own: dict[str, str]) -> subprocess.Popen[bytes]:
        self.starts += 1
        (self.folder / "ready").unlink(missing_ok=True)
        (self.folder / "result.json").unlink(missing_ok=True)
        self._child = subprocess.Popen([sys.executable, "-S", "-c", self.code, str(self.folder)])
        return self._child


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    folder = tmp_path / "study" / "run"
    folder.mkdir(parents=True)
    (folder / "job.yaml").touch()
    file = tmp_path / "study" / ".slurm" / "token.json"
    file.parent.mkdir()
    run = {"id": "abc", "name": "run", "folder": str(folder)}
    file.write_text(json.dumps({"attempts_without_progress": 2, "runs": [{}, run]}))
    return file


@pytest.fixture
def signals():
    """Put this process's handlers back."""
    kept = {signum: signal.getsignal(signum) for signum in (signal.SIGUSR2, signal.SIGTERM, signal.SIGINT)}
    yield
    for signum, handler in kept.items():
        signal.signal(signum, handler)


def when_ready(supervisor: StandIn, signum: int) -> threading.Thread:
    def send() -> None:
        while not (supervisor.folder / "ready").exists():
            time.sleep(0.01)
        os.kill(os.getpid(), signum)

    thread = threading.Thread(target=send)
    thread.start()
    return thread


def result(supervisor: StandIn) -> dict:
    return json.loads((supervisor.folder / "result.json").read_text())


def test_a_task_knows_its_run_and_its_rank():
    assert Task.of(ENVIRONMENT) == Task("7_1", 1, 0, 1, 0)
    ranked = ENVIRONMENT | {"SLURM_PROCID": "3", "SLURM_STEP_NUM_TASKS": "4", "SLURM_LOCALID": "1"}
    assert Task.of(ranked) == Task("7_1", 1, 3, 4, 1)
    assert Task.of({"SLURM_JOB_ID": "9"}).job == "9"


def test_a_run_that_finishes_ends_the_job_and_is_not_started_again(manifest: Path):
    supervisor = StandIn(manifest, "end('finished', 0)")
    assert supervisor.run() == 0
    assert supervisor.run() == 0
    assert supervisor.starts == 1
    assert [one.how for one in attempts.read(supervisor.folder)] == ["finished"]


def test_a_warned_run_saves_and_the_job_asks_to_be_queued_again(manifest: Path, signals):
    supervisor = StandIn(manifest, "time.sleep(60)")
    supervisor.catch_signals()
    thread = when_ready(supervisor, signal.SIGUSR2)
    assert supervisor.run() == AGAIN
    thread.join()
    assert (manifest.parent / "requeue.7_1").exists()
    assert result(supervisor)["status"] == "interrupted"


def test_a_run_without_progress_is_given_up_at_its_limit(manifest: Path, signals):
    for expected in (AGAIN, AGAIN, 1):  # step 1 is progress once
        supervisor = StandIn(manifest, "time.sleep(60)", step=1)
        supervisor.catch_signals()
        (supervisor.folder / "ready").unlink(missing_ok=True)
        thread = when_ready(supervisor, signal.SIGUSR2)
        assert supervisor.run() == expected
        thread.join()
    assert result(supervisor)["error"]["type"] == "NoProgress"


@pytest.mark.parametrize("answers", [[{"JobState": "RUNNING", "PreemptTime": "None"}] * 3])
def test_a_terminated_run_is_never_queued_again_from_here(manifest: Path, signals, monkeypatch, answers):
    """After SIGTERM only SLURM knows what follows."""
    monkeypatch.setattr(job, "job_fields", lambda _: answers.pop())
    monkeypatch.setattr(job.time, "sleep", lambda _: None)
    supervisor = StandIn(manifest, "time.sleep(60)")
    supervisor.catch_signals()
    os.environ["PYTHONUNBUFFERED"] = "1"
    sender = subprocess.Popen(
        [sys.executable, "-S", "-c",
         "import os, pathlib, signal, sys, time\n"
         "while not pathlib.Path(sys.argv[1]).exists(): time.sleep(0.01)\n"
         "os.kill(int(sys.argv[2]), signal.SIGTERM)", str(supervisor.folder / "ready"), str(os.getpid())]
    )  # fmt: skip
    assert supervisor.run() == STOPPED
    sender.wait()
    assert not (manifest.parent / "requeue.7_1").exists()
    assert not answers


@pytest.mark.parametrize(
    ("code", "exit_code", "how", "sentence"),
    [
        ("sys.exit(0)", 1, "failed", "left before the end"),
        ("sys.exit(5)", 5, "failed", "ended with exit code 5"),
        ("import os; os.kill(os.getpid(), 9)", 137, "killed", "was killed by SIGKILL"),
    ],
)
def test_an_end_without_a_word_is_recorded(manifest: Path, code: str, exit_code: int, how: str, sentence: str):
    supervisor = StandIn(manifest, code)
    assert supervisor.run() == exit_code
    assert result(supervisor)["status"] == "failed"
    assert sentence in result(supervisor)["error"]["message"]
    assert [one.how for one in attempts.read(supervisor.folder)] == [how]


def test_the_exit_code_of_a_failed_run_is_the_jobs(manifest: Path):
    supervisor = StandIn(manifest, "end('failed', 1)")
    assert supervisor.run() == 1


def test_a_copy_that_was_taken_over_ends_its_run_at_once(manifest: Path, monkeypatch):
    monkeypatch.setattr(job, "TICK", 0.05)
    supervisor = StandIn(manifest, "time.sleep(60)")

    def take_over() -> None:
        while not (supervisor.folder / "ready").exists():
            time.sleep(0.01)
        second = lease.claim(supervisor.folder, "7_1", pause=0.05)
        assert supervisor._child is not None
        assert supervisor._child.poll() is not None  # what waited was worth it: nobody else writes
        second.release()

    thread = threading.Thread(target=take_over)
    thread.start()
    assert supervisor.run() == FENCED
    thread.join()
    assert not (supervisor.folder / "result.json").exists()


def test_a_run_that_another_job_is_writing_is_left_to_it(manifest: Path, capsys: pytest.CaptureFixture[str]):
    supervisor = StandIn(manifest, "end('finished', 0)")
    other = lease.claim(supervisor.folder, "8_0")
    assert supervisor.run() == FENCED
    assert "is being written by job 8_0" in capsys.readouterr().err
    assert (supervisor.starts, lease.read(supervisor.folder)) == (0, other.holder)


def test_a_job_that_cannot_see_its_files_says_so(manifest: Path, monkeypatch):
    monkeypatch.setattr(job, "LAG", 0.0)
    with pytest.raises(SystemExit, match="must lie on a file system that all nodes share"):
        StandIn(manifest.with_name("absent.json"), "")


def test_a_signal_before_the_run_starts_is_not_lost(manifest: Path):
    supervisor = StandIn(manifest, "time.sleep(60)")
    supervisor.warned = True
    assert supervisor.run() == AGAIN
    assert supervisor.starts == 0


def test_a_run_whose_identity_changed_refuses_to_run(tmp_path: Path):
    from lossbench import app
    from lossbench.sweep.plan import plan
    from lossbench.sweep.process import freeze

    (one,) = plan([app.compose(f"paths.runs={tmp_path}", "tracking.mode=disabled")])
    frozen = freeze(one)
    done = subprocess.run(
        [sys.executable, "-m", "lossbench.run", str(frozen)],
        env={**os.environ, job.EXPECTED: "0123456789abcdef"}, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 2
    assert "was submitted as 0123456789abcdef and is" in done.stderr
