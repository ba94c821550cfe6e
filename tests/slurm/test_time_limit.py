"""A run that needs longer than its job may take."""

from tests.slurm.sweeps import ends, finish, job_of, numbers


def test_a_time_limit_is_one_stop_of_several(cluster, sweeps, reference):
    """The end comes closer once the run trains, so that its signal comes within 30 s, however long the start took."""
    here = sweeps(cluster, pause=2.5)
    process = here.start("hydra.launcher.signal_delay_s=60", "hydra.launcher.attempts_without_progress=9")
    here.wait_for_step(4)
    cluster.run("scontrol", "update", f"job={job_of(here)}", "EndTime=now+95seconds")
    folder = finish(here, process)
    assert len(ends(folder)) > 1
    assert set(ends(folder)) == {"interrupted", "finished"}
    assert numbers(folder) == reference
