"""Submitting, following, coming back."""

import json
import shutil
import signal

import pytest

from lossbench.sweep.slurm import registry
from tests.slurm.sweeps import SLURM, ends, logged_step, numbers, result


def test_a_killed_launcher_is_attached_to_again(cluster, sweeps):
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
    assert len(here.arrays()) == 1


def test_ctrl_c_leaves_the_jobs_running_and_the_same_command_follows_them(cluster, sweeps):
    here = sweeps(cluster, pause=2)
    first = here.start()
    here.wait_for_step(2)
    first.send_signal(signal.SIGINT)
    assert first.wait(60) == 130
    assert "The jobs go on running" in here.said
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


def test_more_runs_than_an_array_may_have_become_several(another_cluster, sweeps):
    here = sweeps(another_cluster(max_array=3))
    code, said = here.run("seed=0,1,2,3")
    assert code == 0, said + here.state()
    assert len(here.arrays()) == 2
    assert len(here.folders()) == 4
    assert {result(folder)["status"] for folder in here.folders()} == {"finished"}


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
