"""Five runs in one array, to four of which something happens."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.slurm.cluster import Cluster
from tests.slurm.sweeps import Sweeps, ends, numbers, result


@pytest.fixture(scope="module")
def ended(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sweeps]:
    sweeps = Sweeps(cluster, tmp_path_factory.mktemp("array"))
    sweeps.code, sweeps.first = sweeps.run("+loss.what=nothing,raise,exit,kill,memory")  # type: ignore[attr-defined]
    yield sweeps
    sweeps.end()


def folder_of(sweeps: Sweeps, what: str) -> Path:
    (folder,) = [f for f in sweeps.folders() if f"what: {what}\n" in (f / "job.yaml").read_text()]
    return folder


def state_of(sweeps: Sweeps, what: str) -> dict:
    return sweeps.listed()[folder_of(sweeps, what).name]


def test_one_array_takes_them_all_and_the_sweep_ends_with_exit_code_1(ended: Sweeps):
    assert ended.code == 1, ended.said  # type: ignore[attr-defined]
    assert len(ended.arrays()) == 1
    assert "4 of 5 runs did not finish" in ended.first  # type: ignore[attr-defined]


def test_a_run_beside_failing_ones_finishes_with_the_numbers_it_has_alone(ended: Sweeps, reference):
    folder = folder_of(ended, "nothing")
    assert result(folder)["status"] == "finished"
    assert numbers(folder)[3] == reference[3]


def test_a_function_that_raises_fails_its_own_run_alone(ended: Sweeps):
    run = state_of(ended, "raise")
    assert (run["state"], run["reason"]) == ("failed", "the third step was one too many")
    assert any("the third step was one too many" in line for line in run["log"])
    assert "the third step was one too many" in ended.first  # type: ignore[attr-defined]
    assert "RuntimeError" in (folder_of(ended, "raise") / "error.txt").read_text()


def test_sys_exit_0_is_no_success(ended: Sweeps):
    run = state_of(ended, "exit")
    assert run["state"] == "failed"
    assert "left before the end" in run["reason"]


def test_kill_9_is_named(ended: Sweeps):
    run = state_of(ended, "kill")
    assert run["state"] == "failed"
    assert "was killed by SIGKILL" in run["reason"]
    assert ends(folder_of(ended, "kill")) == ["killed"]


def test_out_of_memory_is_told_from_other_failures(ended: Sweeps):
    run = state_of(ended, "memory")
    assert run["state"] == "out of memory"
    assert "memory limit" in run["reason"]


def test_the_same_command_again_submits_nothing_and_failed_runs_are_tried_again_when_asked(ended: Sweeps):
    what = "+loss.what=nothing,raise,exit,kill,memory"
    code, said = ended.run(what)
    assert "5 runs, 1 of them finished before, 4 failed before" in said
    assert code == 1
    assert len(ended.arrays()) == 1
    code, said = ended.run("+loss.what=nothing,raise", "sweep.retry_failed=true")
    assert "Submitted 1 runs" in said
    assert len(ended.arrays()) == 2
    assert ends(folder_of(ended, "raise")) == ["failed", "failed"]
    assert ends(folder_of(ended, "nothing")) == ["finished"]


def test_one_run_is_started_again_by_its_id(ended: Sweeps):
    folder = folder_of(ended, "exit")
    arrays = ended.arrays()
    done = ended.lossbench("runs", "retry", state_of(ended, "exit")["id"], "--runs", str(ended.folder))
    assert done.returncode == 0, done.stderr
    assert "Submitted as" in done.stdout
    assert len(ended.arrays()) == len(arrays) + 1
    ended.wait_for("its second end", lambda: [how for how in ends(folder) if how] == ["failed", "failed"])
    shown = ended.lossbench("runs", "logs", state_of(ended, "exit")["id"], "--runs", str(ended.folder))
    assert f"Attempt 2 of {folder}" in shown.stdout
    assert "left before the end" in result(folder)["error"]["message"]
