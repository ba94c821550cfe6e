"""Kinds of sweeps: several arrays, several processes a run, rounds of trials, from within a job."""

import json

from lossbench.sweep.slurm import registry
from tests.slurm.sweeps import ends, numbers, result
from tests.test_run import SMALL


def test_more_runs_than_an_array_may_have_become_several(another_cluster, sweeps, reference):
    here = sweeps(another_cluster(max_array=2))
    code, said = here.run("seed=0,1,2")
    assert code == 0, said + here.state()
    assert len(here.arrays()) == 2
    assert len(here.folders()) == 3
    assert {result(folder)["status"] for folder in here.folders()} == {"finished"}
    assert numbers(here.seed(0)) == reference


def test_two_ranks_train_one_run(cluster, sweeps):
    here = sweeps(cluster)
    two = (
        "trainer=ddp",
        "trainer.devices=2",
        "trainer.batch_size=2",
        "trainer.accumulate=2",
        "trainer.accelerator=cpu",
    )
    code, said = here.run(*two, "hydra.launcher.tasks_per_node=2")
    assert code == 0, said + here.state()
    folder = here.only()
    assert result(folder)["status"] == "finished"
    assert (folder / "log.rank1.txt").exists()
    assert ends(folder) == ["finished"]
    assert [
        line["step"] for line in map(json.loads, (folder / "metrics.jsonl").open()) if "train/loss" in line
    ] == list(range(1, 25))


def test_losses_are_tuned_on_a_cluster_as_they_are_here(cluster, sweeps):
    """Every round of trials is an array; the settings that are asked for are those of a search without a cluster."""
    here = sweeps(cluster)
    here.training = (*SMALL, "evaluation.generate=false", "trainer.progress=false")
    tuned = ("hydra/sweeper=optuna", "hydra.sweeper.n_trials=2", "loss=label_smoothing,focal", "seed=0")
    code, said = here.run(*tuned, study="s")
    assert code == 0, said + here.state()
    assert "2 of 2" in said
    assert [len(lines) for lines in arrays_of(here, "s_trials")] == [2, 2]
    searches = json.loads((here.folder / "s" / "tuning.json").read_text())["searches"]
    assert {search["loss"]: search["n_trials"] for search in searches} == {"label_smoothing": 2, "focal": 2}
    assert all(result(folder)["status"] == "finished" for folder in here.folders("s") + here.folders("s_trials"))
    report = here.lossbench("report", str(here.folder / "s"), "--out", str(here.folder / "report"))
    assert report.returncode == 0, report.stderr
    table = (here.folder / "report" / "report.md").read_text()
    assert "focal (tuned, 2 trials)" in table or "focal (default, best of 2 trials)" in table


def arrays_of(here, study: str) -> list[tuple[str, ...]]:
    return [submission.runs for submission in registry.submissions(here.folder / study)]


def test_a_sweep_starts_from_within_a_job(cluster, sweeps, reference):
    """The variables of the job around it would be taken for options of sbatch and srun."""
    here = sweeps(cluster)
    here.environment |= {
        "SLURM_MEM_PER_CPU": "100",
        "SBATCH_PARTITION": "nowhere",
        "SLURM_JOB_ID": "1",
        "SLURM_NTASKS": "9",
    }
    code, said = here.run()
    assert code == 0, said + here.state()
    assert numbers(here.only()) == reference
