"""Submitting, following, coming back."""

import json
import os
import pty
import shutil
import signal

import pytest

from lossbench.sweep.slurm import registry
from tests.slurm.sweeps import SLURM, ends, logged_step, numbers, result
from tests.test_run import SMALL


def test_a_killed_launcher_is_attached_to_again(cluster, sweeps, reference):
    here = sweeps(cluster, pause=0.4)
    process = here.start("seed=0,1")
    here.wait_for("a running job", lambda: [folder for folder in here.folders() if logged_step(folder)])
    process.kill()
    process.wait()
    running = here.listed()
    assert {run["state"] for run in running.values()} <= {"running", "pending", "finished"}
    assert any(run["steps"] == 24 and run["node"] in ("n0", "n1") for run in running.values())
    attached = here.lossbench("runs", "attach", str(here.folder / "default"), timeout=240)
    assert attached.returncode == 0, attached.stderr
    assert {result(folder)["status"] for folder in here.folders()} == {"finished"}
    assert numbers(here.seed(0)) == reference
    assert len(here.arrays()) == 1


def test_ctrl_c_asks_once_leaves_the_jobs_running_and_the_same_command_follows_them(cluster, sweeps):
    here = sweeps(cluster, pause=1.5)
    terminal, its_end = pty.openpty()
    first = here.start(stdin=its_end)
    here.wait_for_step(2)
    first.send_signal(signal.SIGINT)
    here.wait_for("a question", lambda: here.said.count("Stop watching?") == 1)
    os.write(terminal, b"n\n")
    here.wait_for("its answer", lambda: "Still watching." in here.said)
    first.send_signal(signal.SIGINT)
    here.wait_for("it once more", lambda: here.said.count("Stop watching?") == 2)
    os.write(terminal, b"\n")
    assert first.wait(60) == 130
    assert "The jobs go on running" in here.said
    assert here.only()
    code, said = here.run()
    assert code == 0, said
    assert "1 of them have a job or a process already, and are followed" in said
    assert len(here.arrays()) == 1
    assert ends(here.only()) == ["finished"]


def test_what_was_submitted_is_found_although_the_answer_was_lost(cluster, sweeps, monkeypatch):
    here = sweeps(cluster, pause=0.2)
    code, _ = here.run("hydra.launcher.wait=false")
    assert code == 0
    study = here.folder / "default"
    intent, answer = (study / "jobs.jsonl").read_text().splitlines()
    (study / "jobs.jsonl").write_text(intent + "\n" + answer[:10])  # killed while it wrote
    monkeypatch.setenv("SLURM_CONF", here.environment["SLURM_CONF"])
    (found,) = registry.recover(study)
    assert found.job == json.loads(answer)["job"]
    attached = here.lossbench("runs", "attach", str(study), timeout=240)
    assert attached.returncode == 0, attached.stderr


def test_more_runs_than_an_array_may_have_become_several(another_cluster, sweeps, reference):
    here = sweeps(another_cluster(max_array=2))
    code, said = here.run("seed=0,1,2")
    assert code == 0, said + here.state()
    assert len(here.arrays()) == 2
    assert len(here.folders()) == 3
    assert {result(folder)["status"] for folder in here.folders()} == {"finished"}
    assert numbers(here.seed(0)) == reference


def test_two_ranks_train_one_run(cluster, sweeps):
    here = sweeps(cluster)
    two = (
        "trainer=ddp",
        "trainer.devices=2",
        "trainer.batch_size=2",
        "trainer.accumulate=2",
        "trainer.accelerator=cpu",
    )
    code, said = here.run(*two, "hydra.launcher.tasks_per_node=2")
    assert code == 0, said + here.state()
    folder = here.only()
    assert result(folder)["status"] == "finished"
    assert (folder / "log.rank1.txt").exists()
    assert ends(folder) == ["finished"]
    assert [
        line["step"] for line in map(json.loads, (folder / "metrics.jsonl").open()) if "train/loss" in line
    ] == list(range(1, 25))


def test_a_number_of_processes_that_does_not_fit_is_refused_before_submission(cluster, sweeps):
    here = sweeps(cluster)
    code, said = here.run("hydra.launcher.tasks_per_node=2")
    assert code == 2
    assert "hydra.launcher.tasks_per_node=2 starts 2 processes on a node, but trainer.devices=1" in said
    assert not here.arrays()


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ("hydra.launcher.partition=gpu", "hydra.launcher.partition=gpu is no partition. Known: high, low."),
        ("hydra.launcher.mem_gb=900", "The cluster cannot run such a job:"),
        ("hydra.launcher.timeout_min=90000", "is above the limit of partition low, 1440 minutes"),
        ("hydra.launcher.signal_delay_s=1200", "signal_delay_s=1200 is not before the time limit of timeout_min=20"),
        ("+hydra.launcher.time_min=3", "Unknown key hydra.launcher.time_min. Did you mean 'timeout_min'"),
        ("paths.runs=/proc/runs", "/proc/runs cannot be written"),
        ("paths.runs=/dev/shm/lossbench-test", "lies on tmpfs, which only this machine sees"),
    ],
)
def test_what_the_cluster_cannot_do_is_said_before_anything_is_submitted(cluster, sweeps, override, sentence):
    assert SLURM[1] == "hydra/launcher=slurm"
    here = sweeps(cluster)
    code, said = here.run(override)
    shutil.rmtree("/dev/shm/lossbench-test", ignore_errors=True)
    assert (code, here.arrays()) == (2, [])
    assert sentence in said


def test_more_jobs_than_the_cluster_or_the_account_takes_are_refused_before_submission(another_cluster, sweeps):
    cluster = another_cluster(
        accounting=True, extra=("MaxJobCount=4", "AccountingStorageEnforce=associations,limits"), nodes=1
    )
    here = sweeps(cluster)
    code, said = here.run("seed=0,1,2,3,4")
    assert code == 2
    assert "The cluster takes 4 jobs at a time (MaxJobCount) and has 0; 5 more do not fit." in said
    cluster.run("sacctmgr", "--immediate", "modify", "user", "root", "set", "MaxSubmitJobs=2")
    code, said = here.run("seed=0,1,2")
    assert code == 2
    assert "Your account takes 2 jobs at a time (MaxSubmitJobs) and has 0; 3 more do not fit." in said
    assert not here.arrays()


def test_losses_are_tuned_on_a_cluster_as_they_are_here(cluster, sweeps):
    """Every round of trials is an array; the settings that are asked for are those of a search without a cluster."""
    here = sweeps(cluster)
    here.training = (*SMALL, "evaluation.generate=false", "trainer.progress=false")
    tuned = ("hydra/sweeper=optuna", "hydra.sweeper.n_trials=2", "loss=label_smoothing,focal", "seed=0")
    code, said = here.run(*tuned, study="s")
    assert code == 0, said + here.state()
    assert "2 of 2" in said
    assert [len(lines) for lines in arrays_of(here, "s_trials")] == [2, 2]
    searches = json.loads((here.folder / "s" / "tuning.json").read_text())["searches"]
    assert {search["loss"]: search["n_trials"] for search in searches} == {"label_smoothing": 2, "focal": 2}
    assert all(result(folder)["status"] == "finished" for folder in here.folders("s") + here.folders("s_trials"))
    report = here.lossbench("report", str(here.folder / "s"), "--out", str(here.folder / "report"))
    assert report.returncode == 0, report.stderr
    table = (here.folder / "report" / "report.md").read_text()
    assert "focal (tuned, 2 trials)" in table or "focal (default, best of 2 trials)" in table


def arrays_of(here, study: str) -> list[tuple[str, ...]]:
    return [submission.runs for submission in registry.submissions(here.folder / study)]


def test_a_sweep_starts_from_within_a_job(cluster, sweeps, reference):
    """The variables of the job around it would be taken for options of sbatch and srun."""
    here = sweeps(cluster)
    here.environment |= {
        "SLURM_MEM_PER_CPU": "100",
        "SBATCH_PARTITION": "nowhere",
        "SLURM_JOB_ID": "1",
        "SLURM_NTASKS": "9",
    }
    code, said = here.run()
    assert code == 0, said + here.state()
    assert numbers(here.only()) == reference
