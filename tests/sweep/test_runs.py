"""`lossbench runs` without a cluster."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lossbench import app
from lossbench.cli import app as cli
from lossbench.errors import ConfigError
from lossbench.sweep.estimate import duration, estimate
from lossbench.sweep.plan import Job, expect, plan
from lossbench.sweep.process import freeze
from lossbench.sweep.status import expected, find_run, progress
from lossbench.tracking.record import open_record
from tests.test_run import SMALL


def invoke(*arguments: str) -> str:
    done = CliRunner().invoke(cli, list(arguments))
    assert done.exit_code == 0, (done.output, done.exception)
    return done.output


@pytest.fixture
def study(tmp_path: Path):
    """Seed 0 finished, 1 failed, 2 was killed in the middle, 3 never started."""
    overrides = (f"paths.runs={tmp_path}", "study=s", "tracking.mode=disabled", "trainer.max_steps=40")
    jobs = plan([app.compose(f"seed={seed}", *overrides) for seed in range(4)])
    expect(jobs)
    with open_record(jobs[0].config, jobs[0].identity) as record:
        record.log(40, {"val/nll": 1.0})
        record.finish({"time/train_s": 90.0, "time/eval_s": 10.0, "data/n_steps": 40.0}, {"step": 40})
    with pytest.raises(ValueError, match="no luck"), open_record(jobs[1].config, jobs[1].identity):
        raise ValueError("no luck")
    with open_record(jobs[2].config, jobs[2].identity) as record:
        for step in range(1, 11):
            record.log(step, {"train/loss": 1.0})
    log = jobs[2].folder / "metrics.jsonl"
    log.write_text("".join(json.dumps({"step": step, "time": step / 2}) + "\n" for step in range(1, 11)))
    (jobs[2].folder / "result.json").unlink()
    return tmp_path, jobs


def test_the_word_list_may_be_left_out(study):
    runs, _ = study
    assert invoke("runs", "s", "--runs", str(runs)) == invoke("runs", "list", "s", "--runs", str(runs))
    assert invoke("runs", "--runs", str(runs), "s", "--json") == invoke("runs", "s", "--json", "--runs", str(runs))


def test_every_run_is_listed_with_its_state_and_why(study):
    runs, _ = study
    found = {run["seed"]: run for run in json.loads(invoke("runs", "s", "--runs", str(runs), "--json"))}
    assert {seed: run["state"] for seed, run in found.items() if seed is not None} == {
        0: "finished", 1: "failed", 2: "interrupted",
    }  # fmt: skip
    assert [run["state"] for run in json.loads(invoke("runs", "s", "--runs", str(runs), "--json"))][-1] == "missing"
    assert found[1]["reason"] == "no luck"
    assert any("ValueError: no luck" in line for line in found[1]["log"])
    assert (found[2]["step"], found[2]["steps"]) == (10, 40)
    text = invoke("runs", "s", "--runs", str(runs))
    assert "s: 4 runs, 1 done, 1 failed, 1 interrupted, 1 missing" in text
    assert "| ValueError: no luck" in text
    assert "step 10/40" in text


def test_speed_and_time_left_follow_from_the_log(study):
    _, jobs = study
    now = progress(expected(jobs[0].folder.parent)[2])
    assert (now.steps_per_second, now.seconds_left) == (2.0, 15.0)


def test_a_run_is_found_by_the_beginning_of_its_id_its_name_or_its_folder(study):
    runs, jobs = study
    for wanted in (jobs[1].identity.id, jobs[1].identity.id[:6], jobs[1].identity.name, str(jobs[1].folder)):
        assert find_run(runs, wanted)[1].folder == jobs[1].folder
    with pytest.raises(ConfigError, match="No run below"):
        find_run(runs, "nothing")
    with pytest.raises(ConfigError, match="means 4 runs"):
        find_run(runs, "")


def test_logs_are_shown(study):
    runs, jobs = study
    (jobs[1].folder / "log.txt").write_text("one\ntwo\nthree\n")
    printed = invoke("runs", "logs", jobs[1].identity.id[:8], "--runs", str(runs), "-n", "2")
    assert printed.endswith("two\nthree\n")


def test_a_local_run_is_cancelled_with_its_state_saved(tmp_path: Path):
    (job,) = plan([app.compose(*SMALL, "trainer.max_steps=100000", f"paths.runs={tmp_path}", "trainer.progress=false")])
    expect([job])
    freeze(job)
    command = [sys.executable, "-m", "lossbench.run", str(job.folder / "job.yaml")]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 200
        while not (job.folder / "metrics.jsonl").exists() or not (job.folder / "metrics.jsonl").stat().st_size:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        assert " 1 running" in invoke("runs", "default", "--runs", str(tmp_path))
        assert invoke("runs", "cancel", "default", "--runs", str(tmp_path)) == f"cancelled {job.identity.name}\n"
        assert process.wait(120) == 128 + signal.SIGTERM
    finally:
        process.kill()
        process.wait()
    assert "interrupted" in invoke("runs", "default", "--runs", str(tmp_path))
    assert "Nothing of it" in invoke("runs", "cancel", "default", "--runs", str(tmp_path))


@pytest.fixture
def waiting(tmp_path: Path) -> Job:
    """A run that was part of a sweep, was stopped before it began, and takes some seconds."""
    (job,) = plan([app.compose(*SMALL, "trainer.max_steps=20", f"paths.runs={tmp_path}", "trainer.progress=false")])
    expect([job])
    freeze(job)
    with pytest.raises(SystemExit), open_record(job.config, job.identity):
        raise SystemExit(143)
    return job


def command(*arguments: str) -> subprocess.Popen[str]:
    code = "from lossbench.cli import main; main()"
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )  # fmt: skip


@pytest.mark.slow
def test_a_run_is_started_again_watched_and_followed_to_its_end(waiting: Job, tmp_path: Path):
    """`retry` runs it here; `--watch`, `attach` and `logs --follow` look on from other processes."""
    runs = ("--runs", str(tmp_path))
    assert "1 interrupted" in invoke("runs", "default", *runs)
    retried = command("runs", "retry", waiting.identity.id, *runs)
    deadline = time.monotonic() + 200
    while " 1 running" not in invoke("runs", "default", *runs):
        assert retried.poll() is None, retried.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.1)
    onlookers = [command("runs", "default", "--watch", *runs), command("runs", "attach", "default", *runs)]
    log = command("runs", "logs", waiting.identity.id, "--follow", *runs)
    said, _ = retried.communicate(timeout=200)
    assert f"started {waiting.identity.name}" in said
    assert waiting.state == "finished"
    watched, attached = (onlooker.communicate(timeout=60)[0] for onlooker in onlookers)
    assert [onlooker.returncode for onlooker in onlookers] == [0, 0]
    assert " 1 running" in watched
    assert watched.rstrip().splitlines()[-2].startswith("default: 1 runs, 1 done")
    assert f"[1/1] finished {waiting.identity.name}" in attached
    with (waiting.folder / "log.txt").open("a") as file:
        file.write("a last word\n")
    assert log.stdout is not None
    while "a last word" not in log.stdout.readline():
        assert log.poll() is None
    log.send_signal(signal.SIGINT)
    assert log.wait(60) == 0
    assert "Nothing of it can be started again" in invoke("runs", "retry", waiting.identity.id, *runs)


def test_an_estimate_goes_by_finished_neighbours(study):
    _, jobs = study
    found = estimate([jobs[0]], jobs[1:])
    assert (found.seconds, found.unknown) == (300.0, 0)
    other = plan([app.compose("model=gpt2", "dataset=gsm8k", "tracking.mode=disabled")])
    assert estimate([jobs[0]], other).unknown == 1


@pytest.mark.parametrize(
    ("seconds", "text"), [(45, "45 s"), (89, "89 s"), (600, "10 min"), (12000, "3 h 20 min"), (187200, "2 d 4 h")]
)
def test_durations_are_readable(seconds: float, text: str):
    assert duration(seconds) == text


def train(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    root = Path(__file__).parents[2]
    return subprocess.run(
        [sys.executable, str(root / "train.py"), *arguments], cwd=cwd, capture_output=True, text=True, timeout=120,
        env={**os.environ, "COLUMNS": "200"},
    )  # fmt: skip


def test_a_study_of_ones_own_in_the_present_folder_is_shown_before_it_runs(tmp_path: Path):
    (tmp_path / "sweeps").mkdir()
    (tmp_path / "sweeps" / "mine.yaml").write_text(
        "study: mine\nsweep:\n  grid: {loss: [emo, focal], model: [tiny, llama2_7b]}\n  seeds: [0, 1, 2, 5]\n"
        "  exclude: [{model: llama2_7b, loss: focal}]\n  baseline: emo\n"
        "  cells: [{when: {model: llama2_7b}, set: {trainer.max_steps: 7}}]\n"
    )
    done = train("-m", "sweep=mine", "sweep.dry_run=true", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "12 runs, 12 to run." in " ".join(done.stdout.split())
    assert "0-2, 5" in done.stdout
    assert not (tmp_path / "runs").exists()
    done = train("sweep=mine", cwd=tmp_path)
    assert (done.returncode, "add -m" in done.stderr) == (2, True)
    done = train("hydra/launcher=slurm", cwd=tmp_path)
    assert (done.returncode, "add -m" in done.stderr) == (2, True)
