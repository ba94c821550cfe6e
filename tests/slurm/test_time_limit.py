"""A run that needs longer than its job may take."""

from tests.slurm.sweeps import ends, finish, numbers


def test_a_time_limit_is_one_stop_of_several(cluster, sweeps, reference):
    """Training takes longer than SLURM leaves to it: the signal comes 30 to 60 s after the start."""
    here = sweeps(cluster, pause=3)
    process = here.start(
        "hydra.launcher.timeout_min=2", "hydra.launcher.signal_delay_s=60", "hydra.launcher.attempts_without_progress=9"
    )
    folder = finish(here, process)
    assert len(ends(folder)) > 1
    assert set(ends(folder)) == {"interrupted", "finished"}
    assert numbers(folder) == reference
