"""Jobs that SLURM ends for good: how each is named, and that the same command goes on with all of them."""

import pytest

from tests.slurm.sweeps import Sweeps, fields, numbers, result


@pytest.fixture
def ended(another_cluster, sweeps) -> Sweeps:
    """Three runs that may not be queued again, one on every node: preempted, over its time limit, its node lost."""
    cluster = another_cluster(nodes=3, preempt_signal=False, grace=1, slurmd_timeout=10)
    here = sweeps(cluster, pause=600)  # deaf to signals: they would be seen after the step
    process = here.start(
        "seed=0,1,2", "hydra.launcher.mem_gb=5", "hydra.launcher.partition=low",
        "+hydra.launcher.additional_parameters.no-requeue=true",
    )  # fmt: skip
    study = here.folder / "default"
    here.wait_for(
        "three first steps", lambda: sum("value 1" in log.read_text() for log in study.glob("*/log.txt")) == 3
    )
    array = here.arrays()[0]
    preempted, lost, late = (f"{array}_{number}" for number in range(3))
    node = {job: fields(here, job)["NodeList"] for job in (preempted, lost)}
    cluster.kill_node(node[lost])
    cluster.run("sbatch", "-p", "high", "-w", node[preempted], "--exclusive", "-o", "/dev/null", "--wrap", "sleep 1")
    cluster.run("scontrol", "update", f"job={late}", "TimeLimit=1")
    here.wait_for("the end of the sweep", lambda: process.poll() is not None)
    here.code = process.returncode  # type: ignore[attr-defined]
    return here


def test_what_slurm_ended_for_good_is_named_and_the_same_command_goes_on(ended: Sweeps, reference):
    here = ended
    assert here.code == 1, here.said + here.state()  # type: ignore[attr-defined]
    assert "3 of 3 runs did not finish" in here.said
    assert "The same command again goes on with those that did not fail" in here.said
    found = {run["seed"]: run for run in here.listed().values()}
    assert {seed: run["state"] for seed, run in found.items()} == {0: "preempted", 1: "node lost", 2: "timed out"}
    assert found[1]["reason"].startswith("SLURM: NODE_FAIL on n")
    here.environment["LOSSBENCH_TEST_PAUSE"] = "0"
    code, said = here.run("seed=0")
    assert code == 0, said + here.state()
    assert result(here.seed(0))["status"] == "finished"
    assert numbers(here.seed(0)) == reference
