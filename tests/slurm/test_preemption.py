"""A job is taken off its node; afterwards its run has the numbers of one that nothing happened to."""

import time

from tests.slurm.sweeps import Sweeps, ends, fields, finish, job_of, numbers, result


def test_preemption_with_a_warning_saves_and_goes_on(cluster, sweeps, reference):
    here = sweeps(cluster, pause=0.3)
    process = here.start("hydra.launcher.partition=low")
    here.wait_for_step(6)
    preempt(here)
    folder = finish(here, process)
    assert ends(folder) == ["interrupted", "finished"]
    assert numbers(folder) == reference


def test_preemption_without_a_warning_saves_at_sigterm_and_goes_on(another_cluster, sweeps, reference):
    """No accounting either: states come from squeue alone."""
    here = sweeps(another_cluster(preempt_signal=False), pause=0.3)
    process = here.start("hydra.launcher.partition=low")
    here.wait_for_step(6)
    preempt(here)
    folder = finish(here, process)
    assert ends(folder)[-1] == "finished"
    assert len(ends(folder)) == 2
    assert numbers(folder) == reference


def preempt(sweeps: Sweeps) -> None:
    """Jobs that need whole nodes, for a few seconds, in the partition that comes first."""
    cluster = sweeps.cluster
    cluster.run("sbatch", "-p", "high", f"-N{cluster.nodes}", "--exclusive", "-o", "/dev/null", "--wrap", "sleep 3")


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
