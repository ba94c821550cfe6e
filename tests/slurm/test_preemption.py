"""A job has to make room; afterwards its run has the numbers of one that nothing happened to."""

from tests.slurm.sweeps import Sweeps, ends, finish, numbers


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
