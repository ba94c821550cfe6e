"""`python train.py -m` as a user types it."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from rich.console import Console

from lossbench import app
from lossbench.sweep import local, process
from lossbench.sweep.plan import Job, plan
from tests.test_run import SMALL
from tests.training.test_objective import OWN

ROOT = Path(__file__).parents[2]


def train(tmp_path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(ROOT / "train.py"), *arguments, f"paths.runs={tmp_path}"],
        capture_output=True,
        text=True,
        env={**os.environ, "COLUMNS": "200", "OMP_NUM_THREADS": "1"},
        timeout=300,
    )


def states(tmp_path: Path) -> dict[str, str]:
    found = {}
    for file in tmp_path.glob("*/*/result.json"):
        name = json.loads((file.parent / "run.json").read_text())["name"]
        found[name] = json.loads(file.read_text())["status"]
    return found


def test_a_run_that_fails_stops_no_other_and_the_same_command_goes_on(tmp_path: Path):
    command = (
        "-m",
        "loss=cross_entropy",
        "optimizer.lr=1e30,1e-3",
        "trainer.gradient_clip=0",
        *SMALL,
        "hydra.launcher.workers=2",
    )
    done = train(tmp_path, *command)
    assert done.returncode == 1
    assert "became nan at optimizer step 2" in " ".join(done.stderr.split())
    assert "1 of 2 runs did not finish" in done.stderr
    assert sorted(json.loads(f.read_text())["status"] for f in tmp_path.glob("*/*/result.json")) == [
        "failed",
        "finished",
    ]
    again = train(tmp_path, *command)
    assert "2 runs, 1 of them finished before" in again.stderr


def test_a_model_out_of_reach_fails_at_once_with_a_sentence_for_each_run(tmp_path: Path):
    done = train(tmp_path, "-m", "loss=emo,focal", "model=llama2_7b", "dataset=gsm8k", "hydra.launcher.workers=2")
    assert done.returncode == 1
    assert states(tmp_path) == {"emo-llama2_7b-gsm8k-s0": "failed", "focal-llama2_7b-gsm8k-s0": "failed"}
    for file in tmp_path.glob("*/*/result.json"):
        assert "hf download meta-llama/Llama-2-7b-hf" in json.loads(file.read_text())["error"]["message"]


def test_a_wrong_value_in_one_job_stops_the_sweep_before_any_work(tmp_path: Path):
    done = train(tmp_path, "-m", "seed=0,x")
    assert done.returncode == 2
    assert "seed='x' cannot be used" in done.stderr
    assert not list(tmp_path.glob("*/*/run.json"))


def test_a_terminated_run_is_interrupted_and_says_so_by_its_exit_code(tmp_path: Path):
    command = [sys.executable, str(ROOT / "train.py"), *SMALL, "trainer.max_steps=100000", f"paths.runs={tmp_path}"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not any(file.stat().st_size for file in tmp_path.glob("*/*/metrics.jsonl")):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    process.terminate()
    assert process.wait(60) == 143
    assert list(states(tmp_path).values()) == ["interrupted"]


def test_a_loss_of_ones_own_in_the_present_folder_runs_in_a_sweep(tmp_path: Path, monkeypatch):
    (tmp_path / "mine.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    done = train(tmp_path / "runs", "-m", "loss._target_=mine.MyLoss", *SMALL)
    assert done.returncode == 0, done.stderr
    assert list(states(tmp_path / "runs").values()) == ["finished"]


@pytest.mark.slow
def test_every_run_has_a_fresh_process_under_hydras_basic_launcher_as_well(tmp_path: Path):
    done = train(tmp_path, "-m", "hydra/launcher=basic", "seed=0,1", *SMALL, "evaluation.generate=false")
    assert done.returncode == 0, done.stderr
    pids = {json.loads(file.read_text())["pid"] for file in tmp_path.glob("*/*/run.json")}
    assert len(pids) == 2


def test_hydras_basic_launcher_gives_every_job_a_process_of_its_own_as_well():
    from hydra import compose, initialize_config_dir

    from lossbench import resources

    with initialize_config_dir(str(resources.folder("conf")), version_base="1.3"):
        launchers = [
            compose("config", [f"hydra/launcher={name}"], return_hydra_config=True).hydra.launcher
            for name in ("local", "basic")
        ]
    assert launchers[0] == launchers[1]
    assert launchers[1]._target_.endswith("local.LocalLauncher")


@pytest.mark.slow
def test_ctrl_c_ends_the_runs_with_their_state_saved_to_be_gone_on_with(tmp_path: Path):
    """SIGINT to the launcher alone; in a terminal the runs have it as well."""
    command = (
        "-m", "seed=0,1,2", *SMALL, "trainer.max_steps=2000", "trainer.validate_every=1000", "hydra.launcher.workers=2",
    )  # fmt: skip
    launcher = subprocess.Popen(
        [sys.executable, str(ROOT / "train.py"), *command, f"paths.runs={tmp_path}"],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )  # fmt: skip
    deadline = time.monotonic() + 200
    while sum("train/" in file.read_text() for file in tmp_path.glob("*/*/metrics.jsonl")) < 2:  # past the first step
        assert launcher.poll() is None, launcher.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.1)
    launcher.send_signal(signal.SIGINT)
    said, _ = launcher.communicate(timeout=120)
    assert launcher.returncode == 130, said
    assert list(states(tmp_path).values()) == ["interrupted", "interrupted"]  # the third was not started
    assert len(list(tmp_path.glob("*/*/checkpoints/last.safetensors"))) == 2
    shown = train(tmp_path, *command, "sweep.dry_run=true")
    assert "3 runs, 3 to run." in " ".join(shown.stdout.split())
    assert "2 interrupted, 1 missing" in " ".join(shown.stdout.split())


@pytest.fixture
def jobs(tmp_path: Path) -> list[Job]:
    return plan([app.compose(f"seed={seed}", f"paths.runs={tmp_path}", "tracking.mode=disabled") for seed in range(4)])


def run_all(jobs: list[Job], workers: int, monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    """All jobs with some lines of Python in place of a run; `folder` is theirs."""

    def start(folder: Path, run_id: str, *, quiet: bool) -> subprocess.Popen[bytes]:
        begin = "import os, pathlib, sys, time; folder = pathlib.Path(sys.argv[1]); "
        return subprocess.Popen([sys.executable, "-S", "-c", begin + code, str(folder)])

    monkeypatch.setattr(local, "start", start)
    local._run_all(jobs, workers, Console(stderr=True))


def test_as_many_runs_as_there_are_workers_run_at_once(jobs: list[Job], monkeypatch: pytest.MonkeyPatch):
    """A run waits for company, so that fewer at once would never end; and counts who is there."""
    code = (
        "here = folder.parent; (folder / 'here').touch(); "
        "others = lambda: len(list(here.glob('*/here'))) + len(list(here.glob('*/was')));\n"
        "while others() < 2: time.sleep(0.01)\n"
        "time.sleep(0.2); print(len(list(here.glob('*/here'))), file=open(folder / 'count', 'w'))\n"
        "(folder / 'here').rename(folder / 'was')"
    )
    run_all(jobs, 2, monkeypatch, code)
    assert max(int((job.folder / "count").read_text()) for job in jobs) == 2


@pytest.mark.parametrize(
    ("code", "state", "reason"),
    [
        ("sys.exit(0)", "failed", "left before the end, as by sys.exit(0)"),
        ("sys.exit(3)", "failed", "its process ended with exit code 3"),
        ("os.kill(os.getpid(), 9)", "failed", "its process was killed by SIGKILL"),
        ("os.kill(os.getpid(), 15)", "missing", ""),  # somebody stopped it before it began
    ],
)
def test_an_end_without_a_word_is_recorded(
    jobs: list[Job], monkeypatch: pytest.MonkeyPatch, code: str, state: str, reason: str
):
    run_all(jobs[:1], 1, monkeypatch, code)
    assert jobs[0].state == state
    assert reason in jobs[0].reason


def test_a_run_whose_code_or_data_changed_since_refuses_to_run(jobs: list[Job]):
    process.freeze(jobs[0])
    started = process.start(jobs[0].folder, "0123456789abcdef", quiet=True)
    process.note_end(jobs[0].folder, jobs[0].identity.id, started.wait(120))
    assert jobs[0].state == "failed"
    assert "This run was submitted as 0123456789abcdef and is" in jobs[0].reason


def test_a_run_of_another_process_is_waited_for_and_not_run_twice(
    jobs: list[Job], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    from lossbench.tracking.record import open_record

    monkeypatch.setattr(local, "POLL", 0.05)
    began, done = threading.Event(), threading.Event()

    def other() -> None:
        with open_record(jobs[0].config, jobs[0].identity):
            began.set()
            time.sleep(1)
        done.set()

    thread = threading.Thread(target=other)
    thread.start()
    began.wait(60)
    run_all(jobs[:2], 2, monkeypatch, "sys.exit(3)")
    thread.join()
    assert done.is_set()
    assert [job.state for job in jobs[:2]] == ["finished", "failed"]
    assert f"{jobs[0].identity.name} is run by another process already" in " ".join(capsys.readouterr().err.split())
