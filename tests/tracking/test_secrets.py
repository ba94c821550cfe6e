"""Secrets that are planted wherever a careless user leaves them are in no file that a run leaves behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PLANTED = {
    "argument": "sekret-on-the-command-line",
    "variable": "sekret-in-the-environment",
    "slurm": "sekret-in-a-slurm-variable",
    "setting": "sekret-in-the-configuration",
}
CODE = """
import sys
from lossbench import app, tracking
config = app.compose(f"paths.runs={sys.argv[1]}", "tracking.mode=offline")
terms = {"cross_entropy": {**config.loss.terms["cross_entropy"].model_dump(), "hub_token": sys.argv[2]}}
config = config.model_copy(update={"loss": config.loss.model_copy(update={"terms": terms})})
with tracking.open_run(config) as run:
    run.log(1, {"train/loss": 1.0})
    print("sekret-on-the-terminal")
    run.finish({"test/em": 0.5}, {"step": 1})
"""


def test_no_file_of_a_run_holds_a_planted_secret(tmp_path: Path):
    pytest.importorskip("wandb", reason="wandb is not installed")
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("WANDB_")},
        "SOME_API_KEY": PLANTED["variable"],
        "SLURM_JOB_COMMENT": PLANTED["slurm"],
        "HOME": str(tmp_path / "home"),
    }
    command = [sys.executable, "-c", CODE, str(tmp_path / "runs"), PLANTED["setting"], "--token", PLANTED["argument"]]
    subprocess.run(command, check=True, env=environment, timeout=120, cwd=tmp_path)
    files = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert any(file.suffix == ".wandb" for file in files)
    found = {str(file.relative_to(tmp_path)) for file in files if b"sekret" in file.read_bytes()}
    # The frozen configuration is what the run is repeated from; it stays in the run folder, and no tracker reads it.
    assert {name for name in found if not name.endswith("/config.yaml")} == set()
    text = b"".join(file.read_bytes() for file in files if file.suffix == ".wandb")
    assert b"***" in text
    assert not any(home.is_file() for home in (tmp_path / "home").rglob("*"))
