"""Sweeps on a test's cluster, as a user types them."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from safetensors.numpy import load_file

from lossbench.sweep import attempts, lines
from tests.slurm.cluster import Cluster
from tests.test_run import SMALL

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent  # jobs find mishaps.py here
STEPS = 24
# Checkpoints on a signal alone would do; one every few steps also covers what gives no time for one.
TRAINING = (
    *SMALL,
    f"trainer.max_steps={STEPS}",
    "trainer.validate_every=8",
    "trainer.checkpoint_every=4",
    "trainer.progress=false",
    "loss._target_=mishaps.Mishap",
)
SLURM = (
    "-m",
    "hydra/launcher=slurm",
    "hydra.launcher.cpus_per_task=1",
    "hydra.launcher.mem_gb=1.5",
    "hydra.launcher.poll_s=2",
    "hydra.launcher.timeout_min=20",
)


class Sweeps:
    """Commands on one cluster, with their runs in one folder."""

    def __init__(self, cluster: Cluster, folder: Path, pause: float = 0.0) -> None:
        self.cluster, self.folder = cluster, folder
        self.training = TRAINING
        self.environment = {
            **cluster.environment,
            "LOSSBENCH_TEST_PAUSE": str(pause),
            "OMP_NUM_THREADS": "1",
            "COLUMNS": "300",
            "NO_COLOR": "1",
        }
        self._started: list[subprocess.Popen[str]] = []

    def start(self, *overrides: str, study: str = "default", stdin: int | None = None) -> subprocess.Popen[str]:
        """The launcher in the background; what it prints goes to launcher.txt. `stdin`: a file descriptor."""
        log = (self.folder / "launcher.txt").open("a")
        process = subprocess.Popen(
            [sys.executable, str(ROOT / "train.py"), *SLURM, *self.training, f"paths.runs={self.folder}",
             f"study={study}", *overrides],
            cwd=HERE, env=self.environment, stdin=subprocess.DEVNULL if stdin is None else stdin, stdout=log,
            stderr=log, text=True, preexec_fn=_heed_ctrl_c,
        )  # fmt: skip
        self._started.append(process)
        return process

    def run(self, *overrides: str, study: str = "default", timeout: float = 600) -> tuple[int, str]:
        """The launcher to its end: exit code and what it wrote."""
        before = len(self.said)
        process = self.start(*overrides, study=study)
        code = process.wait(timeout)
        return code, self.said[before:]

    @property
    def said(self) -> str:
        file = self.folder / "launcher.txt"
        return " ".join(file.read_text().split()) if file.exists() else ""

    def lossbench(self, *arguments: str, timeout: float = 120) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", "from lossbench.cli import main; main()", *arguments],
            cwd=HERE, env=self.environment, capture_output=True, text=True, timeout=timeout,
        )  # fmt: skip

    def listed(self, study: str = "default") -> dict[str, dict[str, Any]]:
        """`lossbench runs STUDY --json`, by the name of the folder."""
        done = self.lossbench("runs", str(self.folder / study), "--json")
        assert done.returncode == 0, done.stderr
        return {Path(run["folder"]).name: run for run in json.loads(done.stdout)}

    def folders(self, study: str = "default") -> list[Path]:
        return sorted(file.parent for file in (self.folder / study).glob("*/job.yaml"))

    def only(self, study: str = "default") -> Path:
        (folder,) = self.folders(study)
        return folder

    def seed(self, number: int, study: str = "default") -> Path:
        """The folder of the run with this seed."""
        (folder,) = [folder for folder in self.folders(study) if f"-s{number}-" in folder.name]
        return folder

    def arrays(self, study: str = "default") -> list[str]:
        """Ids of what was submitted."""
        file = self.folder / study / "jobs.jsonl"
        return [line["job"] for line in lines.read(file) if line["event"] == "submitted"]

    def wait_for(self, what: str, is_so: Callable[[], Any], timeout: float = 300, pause: float = 0.2) -> Any:
        deadline = time.monotonic() + timeout
        while not (found := is_so()):
            assert self._started[-1].poll() not in (2, 4), f"no {what}: the launcher refused\n{self.said}"
            assert time.monotonic() < deadline, f"no {what}\n{self.said}\n{self.state()}"
            time.sleep(pause)
        return found

    def wait_for_step(self, step: int, study: str = "default") -> Path:
        """Until the only run of a study has trained so far in its present attempt."""

        def reached() -> bool:
            return any(logged_step(folder) >= step for folder in self.folders(study))

        self.wait_for(f"step {step}", reached)
        return self.only(study)

    def end(self) -> None:
        for process in self._started:
            if process.poll() is None:
                process.kill()
                process.wait()

    def state(self) -> str:
        """For the message of a test that fails."""
        parts = [self.cluster.run("squeue", "-t", "all", "-r")]
        for file in sorted(self.folder.glob("*/.slurm/*_log.*")) + sorted(self.folder.glob("*/*/log.txt")):
            parts.append(f"--- {file}\n" + "\n".join(file.read_text(errors="replace").splitlines()[-15:]))
        return "\n".join(parts)


def _heed_ctrl_c() -> None:
    """As in a terminal. Where the tests are run in the background, shells have SIGINT ignored by all they start."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def logged_step(folder: Path) -> int:
    try:
        logged = (folder / "metrics.jsonl").read_text().splitlines()
        return int(json.loads(logged[-1])["step"]) if logged else 0
    except (FileNotFoundError, json.JSONDecodeError):
        return 0


def result(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "result.json").read_text())


def hows(folder: Path) -> list[str | None]:
    """How the attempts of a run ended, as far as they did."""
    return [attempt.how for attempt in attempts.read(folder)]


def ends(folder: Path) -> list[str | None]:
    """The same, once the last one has ended: a run is finished a moment before its process is."""
    deadline = time.monotonic() + 120
    while (found := hows(folder)) and found[-1] is None and time.monotonic() < deadline:
        time.sleep(0.2)
    return found


def numbers(folder: Path) -> Any:
    """All that a run came to: metrics without times, logged values, evaluated examples, bytes of its weights."""
    metrics = {key: value for key, value in result(folder)["metrics"].items() if not key.startswith(("time/", "perf/"))}
    log = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    timed = ("time", "perf/")
    logged = [{key: value for key, value in line.items() if not key.startswith(timed)} for line in log]
    weights = {name: value.tobytes() for name, value in load_file(folder / "checkpoints/best.safetensors").items()}
    return metrics, logged, pq.read_table(folder / "examples.parquet").to_pylist(), weights


def uninterrupted(folder: Path) -> Path:
    """The folder of the same run, run in one go in one process, without a cluster, unless it is there already."""
    if ended := list((folder / "default").glob("*/result.json")):
        return ended[0].parent
    done = subprocess.run(
        [sys.executable, str(ROOT / "train.py"), *TRAINING, f"paths.runs={folder}"],
        cwd=HERE, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (made,) = (folder / "default").glob("*/result.json")
    return made.parent


def job_of(sweeps: Sweeps) -> str:
    return f"{sweeps.arrays()[0]}_0"


def fields(sweeps: Sweeps, job: str) -> dict[str, str]:
    text = sweeps.cluster.run("scontrol", "show", "job", "-o", job)
    return dict(field.split("=", 1) for field in text.split() if "=" in field)


def supervisor_of(sweeps: Sweeps) -> int | None:
    """The pid of the Python process that SLURM started as a job of these sweeps; None before there is one."""
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            program, *arguments = (process / "cmdline").read_bytes().split(b"\0")
            is_ours = any(argument.startswith(bytes(sweeps.folder)) for argument in arguments)
            if is_ours and program == sys.executable.encode() and b"lossbench.sweep.slurm.job" in arguments:
                return int(process.name)
    return None


def finish(sweeps: Sweeps, process) -> Path:
    assert process.wait(600) == 0, f"{sweeps.said}\n{sweeps.state()}"
    folder = sweeps.only()
    assert result(folder)["status"] == "finished"
    return folder
