"""slurmctld is killed while a sweep runs."""

import time

from tests.slurm.sweeps import ends, logged_step, numbers, result


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
