"""A job is warned; afterwards its run has the numbers of one that nothing happened to."""

import json

from tests.slurm.sweeps import ends, fields, finish, hows, job_of, numbers, result, supervisor_of


def test_usr2_in_training_saves_requeues_and_changes_no_number(cluster, sweeps, reference):
    here = sweeps(cluster, pause=0.3)
    process = here.start()
    here.wait_for_step(6)
    cluster.run("scancel", "--signal=USR2", job_of(here))
    folder = finish(here, process)
    assert ends(folder) == ["interrupted", "finished"]
    assert int(fields(here, job_of(here))["Restarts"]) == 1
    assert numbers(folder) == reference


def test_usr2_at_start_up_costs_nothing_but_a_restart(cluster, sweeps, reference):
    """The signal comes before anything could be saved: to Python before it can catch it, or to the imports of torch."""
    here = sweeps(cluster)
    process = here.start()
    here.wait_for("a job", here.arrays)
    here.wait_for("its process", lambda: supervisor_of(here), pause=0.02)
    job = job_of(here)
    cluster.run("scancel", "--signal=USR2", job)
    folder = finish(here, process)
    assert int(fields(here, job)["Restarts"]) >= 1
    assert numbers(folder) == reference


def test_a_run_that_never_comes_further_is_stopped(cluster, sweeps):
    here = sweeps(cluster, pause=5)
    process = here.start("hydra.launcher.attempts_without_progress=2")
    folder = here.wait_for("a run", lambda: here.folders() and here.only())
    for attempt in (1, 2):
        here.wait_for("an attempt", lambda n=attempt: len(hows(folder)) == n and (folder / "run.json").exists())
        cluster.run("scancel", "--signal=USR2", job_of(here))
        here.wait_for("the attempt's end", lambda n=attempt: hows(folder)[n - 1] is not None)
    assert process.wait(120) == 1
    assert result(folder)["error"]["type"] == "NoProgress"
    assert "2 attempts in a row came no further than step 0" in json.dumps(result(folder))
