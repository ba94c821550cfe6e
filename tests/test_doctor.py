import json
import os
import stat
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lossbench import doctor
from lossbench.cli import app


@pytest.fixture(autouse=True)
def _offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("WANDB_API_KEY", raising=False)


def line_of(name: str, runs: Path = Path("runs")) -> doctor.Line:
    return next(line for line in doctor.examine(runs) if line.name == name)


def command(folder: Path, name: str, script: str) -> None:
    file = folder / name
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(file.stat().st_mode | stat.S_IXUSR)


def test_every_line_that_is_not_fine_says_what_to_do(tmp_path: Path):
    for line in doctor.examine(tmp_path):
        assert line.found
        assert line.status == "ok" or line.advice


def test_a_missing_key_is_no_fault_and_never_shown(monkeypatch: pytest.MonkeyPatch):
    assert line_of("wandb login").status == "note"
    monkeypatch.setenv("WANDB_API_KEY", "secret" * 7)
    line = line_of("wandb login")
    assert line.status == "ok" and "secret" not in line.found


def test_slurm_without_a_partition_is_bad(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    command(tmp_path, "sbatch", "exit 0")
    command(tmp_path, "sinfo", "echo 'gpu* up'; echo 'old down'")
    assert (line_of("SLURM").status, line_of("SLURM").found) == ("ok", "partitions gpu")
    command(tmp_path, "sinfo", "echo 'slurm_load_partitions: Unable to contact slurm controller' >&2; exit 1")
    line = line_of("SLURM")
    assert line.status == "bad" and "Unable to contact" in line.found


def test_slurm_programs_without_a_cluster_are_no_fault(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    command(tmp_path, "sbatch", "exit 0")
    command(tmp_path, "sinfo", "echo 'sinfo: fatal: Could not establish a configuration source' >&2; exit 1")
    line = line_of("SLURM")
    assert line.status == "note" and "slurm.conf" in line.found and "hydra/launcher=local" in line.advice


def test_a_check_that_breaks_stops_no_other(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(doctor, "_python", lambda: 1 / 0)
    found = {line.name: line for line in doctor.examine()}
    assert "ZeroDivisionError" in found["Python"].found and found["torch"].status == "ok"


def test_the_hub_that_is_not_there_is_said_within_seconds(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:1")
    line = line_of("hub access")
    assert line.status == "note" and "does not answer" in line.found and "hf download" in line.advice


def test_scripts_can_read_it_and_red_lines_end_with_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("PATH", str(tmp_path))  # no SLURM
    done = CliRunner().invoke(app, ["doctor", "--json"])
    assert done.exit_code == 0
    assert {line["name"] for line in json.loads(done.output)} >= {"Python", "torch", "SLURM"}
    monkeypatch.setattr(doctor, "examine", lambda runs: [doctor.Line("disk", "bad", "full", "Free some space.")])
    done = CliRunner().invoke(app, ["doctor"])
    assert done.exit_code == 1 and "Free some space." in done.output
