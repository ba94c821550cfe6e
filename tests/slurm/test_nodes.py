"""Nodes and daemons that die."""

import json
import time

from tests.slurm.sweeps import ends, hows, logged_step, numbers, result


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


def test_a_sweep_outlives_slurmctld(another_cluster, sweeps, reference):
    cluster = another_cluster()
    here = sweeps(cluster, pause=0.2)
    process = here.start("seed=0,1,2")
    here.wait_for("running jobs", lambda: [folder for folder in here.folders() if logged_step(folder)])
    here.listed()  # what is known now is remembered
    cluster.kill("slurmctld")
    time.sleep(3)
    known = here.lossbench("runs", str(here.folder / "default"))
    assert known.returncode == 0, known.stderr
    assert "SLURM does not answer" in known.stdout
    assert " old." in known.stdout
    assert "running" in known.stdout or "done" in known.stdout
    refused = here.lossbench("runs", "cancel", str(here.folder / "default"))
    assert (refused.returncode, "Nothing was cancelled" in refused.stderr) == (4, True)
    code, said = here.run("seed=3")
    assert (code, "Unable to contact slurm" in said or "has not answered" in said) == (4, True)
    assert len(here.arrays()) == 1
    cluster.start_again("slurmctld")
    assert process.wait(600) == 0, here.said + here.state()
    assert {result(folder)["status"] for folder in here.folders()} == {"finished"}
    assert all(ends(folder).count("finished") == 1 for folder in here.folders())
    assert numbers(here.seed(0)) == reference
