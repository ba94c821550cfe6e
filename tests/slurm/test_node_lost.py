"""A node's slurmd dies for longer than the controller waits for it."""

import json

from tests.slurm.sweeps import ends, hows, numbers, result


def test_a_run_whose_node_is_lost_goes_on_elsewhere_and_its_first_copy_writes_nothing_more(
    another_cluster, sweeps, reference
):
    """slurmd dies, the job's processes do not: SLURM starts a second copy beside them."""
    cluster = another_cluster(slurmd_timeout=10)
    here = sweeps(cluster, pause=3)
    process = here.start("hydra.launcher.mem_gb=5")  # one job a node
    folder = here.wait_for_step(1)
    node = cluster.run("squeue", "-h", "-r", "-t", "R", "-o", "%N").strip()
    cluster.kill(f"slurmd.{node}")
    here.wait_for("a second attempt", lambda: len(hows(folder)) == 2, timeout=240)
    first = json.loads((folder / "attempts.jsonl").read_text().splitlines()[0])
    assert process.wait(600) == 0, here.said + here.state()
    assert result(folder)["status"] == "finished"
    assert numbers(folder) == reference
    # The first copy was still there when the second came (its slurmd could not end it), and gave way to it.
    assert "has taken the run over" in (here.folder / "default/.slurm" / f"{first['job']}_0_log.err").read_text()
    assert (len(ends(folder)), ends(folder)[-1]) == (2, "finished")
