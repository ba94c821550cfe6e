"""Somebody requeues or cancels a job."""

import time

from tests.slurm.sweeps import ends, fields, finish, job_of, numbers, result


def test_scontrol_requeue_by_a_person_goes_on_from_the_checkpoint(cluster, sweeps, reference):
    here = sweeps(cluster, pause=0.3)
    process = here.start()
    here.wait_for_step(6)
    cluster.run("scontrol", "requeue", job_of(here))
    folder = finish(here, process)
    assert ends(folder)[-1] == "finished"
    assert len(ends(folder)) == 2
    assert numbers(folder) == reference


def test_a_cancelled_run_stays_cancelled_keeps_its_state_and_goes_on_when_asked(cluster, sweeps, reference):
    here = sweeps(cluster, pause=0.3)
    process = here.start()
    folder = here.wait_for_step(6)
    done = here.lossbench("runs", "cancel", str(here.folder / "default"))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("cancelled ")
    assert process.wait(120) == 1
    assert "(cancelled)" in here.said
    time.sleep(8)  # longer than a requeue takes
    assert fields(here, job_of(here))["JobState"] == "CANCELLED"
    assert here.listed()[folder.name]["state"] == "cancelled"
    assert result(folder)["status"] == "interrupted"
    code, said = here.run()
    assert code == 0, said
    assert numbers(folder) == reference
