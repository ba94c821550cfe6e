"""What cannot work is said before anything is submitted."""

import shutil

import pytest

from tests.slurm.sweeps import SLURM


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
