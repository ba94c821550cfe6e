"""States of jobs over time, with answers of SLURM made up."""

import io
import json
import sys
from pathlib import Path

import pytest
from rich.console import Console

from lossbench.errors import ConfigError
from lossbench.sweep.slurm import client, launch, registry, submit
from lossbench.sweep.slurm.checks import _check_import, file_system, minutes
from lossbench.sweep.slurm.client import JobState, SlurmError, UnreachableError
from lossbench.sweep.slurm.settings import parse_settings
from lossbench.sweep.slurm.watch import Watcher


class Cluster:
    """What squeue and sacct answer."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, accounting: str = "accounting_storage/none") -> None:
        self.queued: dict[str, JobState] = {}
        self.accounted: dict[str, JobState] = {}
        self.asked: list[list[str]] = []
        self.is_away = False
        monkeypatch.setattr(client, "queued", self._queued)
        monkeypatch.setattr(
            client, "accounted", lambda jobs: {j: self.accounted[j] for j in jobs if j in self.accounted}
        )
        monkeypatch.setattr(client, "config", lambda: {"AccountingStorageType": accounting})

    def _queued(self, jobs):
        if self.is_away:
            raise UnreachableError("squeue has not answered within 25 s.")
        self.asked.append(list(jobs))
        return {job: self.queued[job] for job in jobs if job in self.queued}


def test_a_final_state_is_asked_for_no_more_and_remembered(tmp_path: Path, monkeypatch):
    cluster = Cluster(monkeypatch)
    cluster.queued = {"1_0": JobState("COMPLETED"), "1_1": JobState("RUNNING", node="n0")}
    Watcher.of(tmp_path).look(["1_0", "1_1"], now=100.0)
    again = Watcher.of(tmp_path)
    assert again.state("1_0") == JobState("COMPLETED")
    assert again.asked == 100.0
    again.look(["1_0", "1_1"], now=101.0)
    assert cluster.asked[-1] == ["1_1"]


def test_a_preempted_job_that_comes_back_was_never_over(tmp_path: Path, monkeypatch):
    cluster = Cluster(monkeypatch)
    watcher = Watcher.of(tmp_path)
    cluster.queued = {"1_0": JobState("PREEMPTED")}
    watcher.look(["1_0"], now=0.0)
    assert watcher.state("1_0").state == "PENDING"
    cluster.queued = {"1_0": JobState("RUNNING")}
    watcher.look(["1_0"], now=10.0)
    assert watcher.state("1_0").state == "RUNNING"


def test_a_preempted_job_that_stays_is_over(tmp_path: Path, monkeypatch):
    cluster = Cluster(monkeypatch)
    watcher = Watcher.of(tmp_path)
    cluster.queued = {"1_0": JobState("PREEMPTED")}
    for now in (0.0, 15.0, 30.0):
        watcher.look(["1_0"], now=now)
    assert watcher.state("1_0").state == "PREEMPTED"


def test_a_forgotten_job_is_asked_for_in_accounting(tmp_path: Path, monkeypatch):
    cluster = Cluster(monkeypatch, "accounting_storage/slurmdbd")
    cluster.accounted = {"1_0": JobState("FAILED", exit_code="1:0", step="OUT_OF_MEMORY")}
    watcher = Watcher.of(tmp_path)
    watcher.look(["1_0"])
    assert watcher.state("1_0") == cluster.accounted["1_0"]


def test_without_accounting_a_job_is_gone_after_three_looks(tmp_path: Path, monkeypatch):
    Cluster(monkeypatch)
    watcher = Watcher.of(tmp_path)
    watcher.look(["1_0"])
    watcher.look(["1_0"])
    assert watcher.state("1_0") is None
    watcher.look(["1_0"])
    assert watcher.state("1_0").state == "GONE"


def test_while_slurm_is_away_the_last_word_holds(tmp_path: Path, monkeypatch):
    cluster = Cluster(monkeypatch)
    cluster.queued = {"1_0": JobState("RUNNING")}
    watcher = Watcher.of(tmp_path)
    watcher.look(["1_0"], now=5.0)
    cluster.is_away = True
    watcher.look(["1_0"], now=50.0)
    assert (watcher.state("1_0").state, watcher.asked) == ("RUNNING", 5.0)
    assert "has not answered" in watcher.trouble


def test_submissions_are_read_back_with_lines_that_were_cut_off(tmp_path: Path):
    registry.intend(tmp_path, "a", ["r0", "r1"], {"partition": "gpu"})
    registry.submitted(tmp_path, "a", "11")
    registry.intend(tmp_path, "b", ["r1"], {})
    with (tmp_path / registry.FILE).open("a") as file:
        file.write('{"event": "subm')
    registry.intend(tmp_path, "c", ["r2"], {})
    registry.refused(tmp_path, "c")
    found = registry.submissions(tmp_path)
    assert [(one.token, one.job) for one in found] == [("a", "11"), ("b", None)]
    assert found[0].tasks() == {"11_0": "r0", "11_1": "r1"}
    registry.submitted(tmp_path, "b", "12")
    assert registry.latest_tasks(registry.submissions(tmp_path)) == {"r0": "11_0", "r1": "12_0"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [("90", 90), ("30:00", 30), ("1:30:00", 90), ("2-12:00:00", 3600), ("1-0", 1440), ("UNLIMITED", float("inf"))],
)
def test_times_of_slurm(text: str, expected: float):
    # `30:00` of a partition is minutes and seconds, `1-0` days and hours
    assert minutes(text) == expected


def test_the_kind_of_a_file_system_is_that_of_the_nearest_mount():
    assert file_system(Path("/proc/self")) == "proc"
    assert file_system(Path("/")) not in ("", "proc")


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"time_min": 3}, "Unknown key hydra.launcher.time_min. Did you mean 'timeout_min'"),
        ({"mem_gb": "much"}, "hydra.launcher.mem_gb='much' cannot be used"),
        ({"mem_gb": 1, "mem_per_cpu": "1G"}, "mem_gb and mem_per_cpu exclude each other"),
        ({"timeout_min": 2, "signal_delay_s": 120}, "is not before the time limit"),
        ({"poll_s": 60}, "hydra.launcher.poll_s=60 cannot be used"),
    ],
)
def test_a_wrong_setting_is_a_sentence(given: dict, sentence: str):
    with pytest.raises(ConfigError, match=sentence):
        parse_settings(given)


def test_what_a_job_could_not_import_is_said_before_submission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    isolated = tmp_path / "python"
    isolated.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "$@"\n')  # no installed package, and not this folder
    isolated.chmod(0o755)
    _check_import(parse_settings({}))
    monkeypatch.setattr("sys.executable", str(isolated))
    with pytest.raises(ConfigError, match=r"could not import lossbench \(ModuleNotFoundError.*pip install -e \."):
        _check_import(parse_settings({}))


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("squeue: error: Unable to contact slurm controller (connect failure)", UnreachableError),
        ("sbatch: error: Batch job submission failed: Socket timed out on send/recv operation", UnreachableError),
        ("sbatch: error: invalid partition specified: gpu", SlurmError),
    ],
)
def test_no_answer_and_a_refusal_end_with_exit_code_4(said: str, kind: type):
    found = client.error(said)
    assert type(found) is kind
    assert found.exit_code == 4


def test_a_submission_without_an_answer_is_looked_for_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """sbatch may have arrived although its answer did not: forgotten, its runs would be submitted twice."""

    def sbatch(*_: object) -> str:
        raise client.error("sbatch refused the jobs: Socket timed out on send/recv operation")

    monkeypatch.setattr(submit, "_sbatch", sbatch)
    with pytest.raises(UnreachableError):
        submit.submit(tmp_path, [submit.RunRef("r0", "run", tmp_path / "run")], parse_settings({}), 10)
    (waiting,) = registry.submissions(tmp_path)
    assert waiting.job is None
    monkeypatch.setattr(client, "by_comment", lambda prefix: {"77": prefix + waiting.token})
    (found,) = registry.recover(tmp_path)
    assert found.tasks() == {"77_0": "r0"}


def test_a_refused_submission_is_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def sbatch(*_: object) -> str:
        raise client.error("sbatch refused the jobs: invalid account")

    monkeypatch.setattr(submit, "_sbatch", sbatch)
    with pytest.raises(SlurmError, match="invalid account"):
        submit.submit(tmp_path, [submit.RunRef("r0", "run", tmp_path / "run")], parse_settings({}), 10)
    assert not registry.submissions(tmp_path)
    assert not list((tmp_path / ".slurm").glob("*.json"))


def test_a_launcher_never_looks_away_for_longer_than_it_was_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    looks, pauses = iter([False] * 12 + [True]), []

    class Follower:
        last: tuple[()] = ()

        def __init__(self, *_: object) -> None:
            pass

        def look(self) -> bool:
            return next(looks)

    monkeypatch.setattr(launch, "_Follower", Follower)
    monkeypatch.setattr("time.sleep", pauses.append)
    launch.follow({tmp_path: []}, 30.0, Console(file=io.StringIO()))
    assert len(pauses) == 12
    assert (pauses[0], pauses[-1], max(pauses)) == (2.0, 30.0, 30.0)


def test_fractions_of_memory_reach_sbatch():
    assert parse_settings({"mem_gb": 0.5}).sbatch()["mem"] == "512M"


def test_every_preset_is_what_the_launcher_can_be_told():
    from hydra import compose, initialize_config_dir

    from lossbench import resources

    with initialize_config_dir(str(resources.folder("conf")), version_base="1.3"):
        for file in (resources.folder("conf") / "hydra" / "launcher").glob("*.yaml"):
            composed = compose("config", [f"hydra/launcher={file.stem}"], return_hydra_config=True)
            settings = dict(composed.hydra.launcher)
            assert settings.pop("_target_").endswith("SlurmLauncher")
            parse_settings(json.loads(json.dumps({k: v for k, v in settings.items() if not hasattr(v, "_metadata")})))
