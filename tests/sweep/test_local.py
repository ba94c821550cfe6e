"""`python train.py -m` as a user types it."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from tests.test_run import SMALL
from tests.training.test_objective import OWN

ROOT = Path(__file__).parents[2]


def train(tmp_path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(ROOT / "train.py"), *arguments, f"paths.runs={tmp_path}"],
        capture_output=True,
        text=True,
        env={**os.environ, "COLUMNS": "200", "OMP_NUM_THREADS": "1"},
        timeout=300,
    )


def states(tmp_path: Path) -> dict[str, str]:
    found = {}
    for file in tmp_path.glob("*/*/result.json"):
        name = json.loads((file.parent / "run.json").read_text())["name"]
        found[name] = json.loads(file.read_text())["status"]
    return found


def test_a_run_that_fails_stops_no_other_and_the_same_command_goes_on(tmp_path: Path):
    command = (
        "-m",
        "loss=cross_entropy",
        "optimizer.lr=1e30,1e-3",
        "trainer.gradient_clip=0",
        *SMALL,
        "hydra.launcher.workers=2",
    )
    done = train(tmp_path, *command)
    assert done.returncode == 1
    assert "became nan at optimizer step 2" in " ".join(done.stderr.split())
    assert "1 of 2 runs did not finish" in done.stderr
    assert sorted(json.loads(f.read_text())["status"] for f in tmp_path.glob("*/*/result.json")) == [
        "failed",
        "finished",
    ]
    again = train(tmp_path, *command)
    assert "2 runs, 1 of them finished before" in again.stderr


def test_a_model_out_of_reach_fails_at_once_with_a_sentence_for_each_run(tmp_path: Path):
    done = train(tmp_path, "-m", "loss=emo,focal", "model=llama2_7b", "dataset=gsm8k", "hydra.launcher.workers=2")
    assert done.returncode == 1
    assert states(tmp_path) == {"emo-llama2_7b-gsm8k-s0": "failed", "focal-llama2_7b-gsm8k-s0": "failed"}
    for file in tmp_path.glob("*/*/result.json"):
        assert "hf download meta-llama/Llama-2-7b-hf" in json.loads(file.read_text())["error"]["message"]


def test_a_wrong_value_in_one_job_stops_the_sweep_before_any_work(tmp_path: Path):
    done = train(tmp_path, "-m", "seed=0,x")
    assert done.returncode == 2
    assert "seed='x' cannot be used" in done.stderr
    assert not list(tmp_path.glob("*/*/run.json"))


def test_a_terminated_run_is_interrupted_and_says_so_by_its_exit_code(tmp_path: Path):
    command = [sys.executable, str(ROOT / "train.py"), *SMALL, "trainer.max_steps=100000", f"paths.runs={tmp_path}"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not any(file.stat().st_size for file in tmp_path.glob("*/*/metrics.jsonl")):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    process.terminate()
    assert process.wait(60) == 143
    assert list(states(tmp_path).values()) == ["interrupted"]


def test_a_loss_of_ones_own_in_the_present_folder_runs_in_a_sweep(tmp_path: Path, monkeypatch):
    (tmp_path / "mine.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    done = train(tmp_path / "runs", "-m", "loss._target_=mine.MyLoss", *SMALL)
    assert done.returncode == 0, done.stderr
    assert list(states(tmp_path / "runs").values()) == ["finished"]


def test_hydras_basic_launcher_gives_every_job_a_process_of_its_own_as_well():
    from hydra import compose, initialize_config_dir

    from lossbench import resources

    with initialize_config_dir(str(resources.folder("conf")), version_base="1.3"):
        launchers = [
            compose("config", [f"hydra/launcher={name}"], return_hydra_config=True).hydra.launcher
            for name in ("local", "basic")
        ]
    assert launchers[0] == launchers[1]
    assert launchers[1]._target_.endswith("local.LocalLauncher")
