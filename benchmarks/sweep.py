"""What a sweep costs beside its runs: planning thousands of them, and two hundred jobs through SLURM.

    python benchmarks/sweep.py            # writes benchmarks/results/sweep.md; the part with SLURM needs root

Everything is CPU seconds (user and system) of a whole fresh command, the start of Python included; the median of
several commands. The study of 5,040 runs has the axes of `sweep=vision_losses`. The SLURM cluster is a real one on this
machine (tests/slurm/cluster.py); its jobs are tiny: in place of training, a process that says that it has finished, so
that what is measured is the launcher.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "sweep.md"
TRAIN = [sys.executable, str(ROOT / "train.py")]
LOSSBENCH = [sys.executable, "-c", "from lossbench.cli import main; main()"]
SEEDS = 42
LARGE = [
    "model=redpajama_3b,redpajama_7b,stablelm_3b,falcon_7b,llama2_7b",
    "dataset=gsm8k,mathqa,hellaswag,openbookqa",
    "loss=cross_entropy,emo,ce_focal,ce_generalized_dice,ce_self_adjusting_dice,ce_lovasz",
    f"seed=range(0,{SEEDS})",
    "study=large",
]
JOBS = 200
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Row:
    """A line of the table: seconds of CPU time, and the goal where there is one."""

    what: str
    seconds: float
    goal: float | None = None
    note: str = ""


def cpu(command: list[str], environment: dict[str, str], repeats: int) -> float:
    """Median CPU seconds of a command and its children; the command must succeed."""
    found = []
    for _ in range(repeats):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        found.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return statistics.median(found)


def finish_all(runs: Path) -> int:
    """Give every expected run of the study a folder in which it is finished; returns how many."""
    study = runs / "large"
    expected = json.loads((study / "sweep.json").read_text())["runs"]
    metrics = {"test/em": 0.5, "test/ppl": 2.0, "val/nll": 0.7, "time/train_s": 100.0, "data/n_steps": 1000.0}
    for run in expected:
        folder = study / f"{run['name']}-{run['id']}"
        folder.mkdir()
        (folder / "run.json").write_text(json.dumps({**run, "host": "n0", "config": {"trainer": {"max_steps": None}}}))
        (folder / "result.json").write_text(
            json.dumps({"schema": 1, "id": run["id"], "status": "finished", "error": None, "metrics": metrics})
        )
    return len(expected)


def plan_rows(repeats: int) -> list[Row]:
    """5,040 runs: planned, skipped, listed."""
    environment = {**os.environ, "OMP_WAIT_POLICY": "PASSIVE"}
    with tempfile.TemporaryDirectory() as scratch:
        runs = Path(scratch)
        place = [f"paths.runs={runs}"]
        rows = [Row("`train.py --cfg job`, to compare with", cpu([*TRAIN, "--cfg", "job"], environment, repeats))]
        planned = cpu([*TRAIN, "-m", *LARGE, *place, "sweep.dry_run=true"], environment, repeats)
        rows.append(Row("5,040 runs planned (`sweep.dry_run=true`)", planned, 3.0))
        _expect(runs)
        count = finish_all(runs)
        assert count == 5040, count
        skipped = cpu([*TRAIN, "-m", *LARGE, *place], environment, repeats)
        rows.append(Row("5,040 finished runs skipped (the same command again)", skipped, 3.0))
        listed = cpu([*LOSSBENCH, "runs", "large", "--runs", str(runs)], environment, repeats)
        rows.append(Row("5,040 runs listed (`lossbench runs STUDY`)", listed, 3.0))
        as_json = cpu([*LOSSBENCH, "runs", "large", "--runs", str(runs), "--json"], environment, repeats)
        rows.append(Row("the same with `--json`", as_json))
    return rows


def _expect(runs: Path) -> None:
    """What a launcher writes before the first job starts."""
    code = """
import sys
from unittest.mock import patch
from lossbench import app
sys.argv = ["train.py", "-m", *sys.argv[1:]]
with patch("lossbench.sweep.local.launch"), patch("lossbench.sweep.start._check"):
    app.main()
"""
    subprocess.run([sys.executable, "-c", code, *LARGE, f"paths.runs={runs}"], check=True, stderr=subprocess.DEVNULL)


def slurm_rows() -> list[Row]:
    """200 jobs in one array."""
    sys.path.insert(0, str(ROOT))
    from tests.slurm.cluster import Cluster

    with tempfile.TemporaryDirectory() as scratch, Cluster(Path(scratch) / "slurm", cpus=8) as cluster:
        runs = Path(scratch) / "runs"
        python = f"{sys.executable} {ROOT / 'benchmarks' / 'tiny_job.py'}"
        command = [
            *TRAIN, "-m", "hydra/launcher=slurm", f"hydra.launcher.python='{python}'", "hydra.launcher.cpus_per_task=1",
            "hydra.launcher.mem_gb=0.1", "hydra.launcher.poll_s=5", "loss=cross_entropy,emo,focal,ce_lovasz",
            f"seed=range(0,{JOBS // 4})", f"paths.runs={runs}", "study=jobs",
        ]  # fmt: skip
        environment = {**cluster.environment, "OMP_WAIT_POLICY": "PASSIVE"}
        said = Path(scratch) / "launcher.txt"
        with said.open("wb") as log:
            process = subprocess.Popen(command, env=environment, stderr=log, stdout=log)
        first = _when(process, lambda: any(runs.glob("jobs/*/attempts.jsonl")), said)
        peak = 0
        while process.poll() is None:
            peak = max(peak, _peak_memory(process.pid))
            time.sleep(0.5)
        assert process.returncode == 0, said.read_text()[-2000:]
        size = sum(file.stat().st_size for file in runs.rglob("*") if file.is_file())
        return [
            Row(
                f"first of {JOBS} jobs starts, after the command", first, 5.0, "CPU seconds of the launcher until then"
            ),
            Row("peak memory of the launcher, MB", peak / 1024, 1000.0, "torch is imported to check the losses"),
            Row(f"size of {JOBS} jobs on disk, MB", size / 1e6),
        ]


def _when(process: subprocess.Popen[bytes], is_so: Callable[[], bool], said: Path) -> float:
    """CPU seconds of a process and of its ended children when something becomes true."""
    while not is_so():
        assert process.poll() is None, said.read_text()[-2000:]
        time.sleep(0.02)
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return sum(int(fields[at]) for at in (11, 12, 13, 14)) / TICKS


def _peak_memory(pid: int) -> int:
    """High-water mark in KiB."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("VmHWM:")), 0)


def page(rows: list[Row]) -> str:
    lines = [
        "# What a sweep costs beside its runs",
        "",
        "Written by `python benchmarks/sweep.py`, whose docstring says how. CPU seconds, or MB where it says so.",
        f"Python {platform.python_version()}, {os.cpu_count()} cores shared with other work.",
        "",
        "| | measured | goal |",
        "|---|---:|---:|",
    ]
    for row in rows:
        goal = f"< {row.goal:g}" if row.goal else ""
        note = f" ({row.note})" if row.note else ""
        lines.append(f"| {row.what}{note} | {row.seconds:.2f} | {goal} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--no-slurm", action="store_true")
    options = parser.parse_args()
    rows = plan_rows(options.repeats) + ([] if options.no_slurm else slurm_rows())
    text = page(rows)
    print(text)
    if not options.no_slurm:
        RESULTS.write_text(text)


if __name__ == "__main__":
    main()
