"""How long a report takes, and how much memory, beside the goals.

    python benchmarks/report.py                  # about five minutes; writes benchmarks/results/report.md
    python benchmarks/report.py --runs 200       # fewer runs, prints the table alone

Time is CPU time (user and system) of a fresh process of `lossbench`, median of three: other work on the machine hardly
changes it. Memory is the process's high-water mark. Runs are made up in a temporary folder, with the files, the
settings and the numbers that a real run leaves: 50 log rows, 40 test examples with texts, 100 settings, 40 metrics.
wandb's logs are written by the wandb package itself, with the settings that lossbench uses.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

RESULTS = Path(__file__).parent / "results" / "report.md"
COMMAND = [str(Path(sys.executable).with_name("lossbench"))]
LOSSES, DATASETS = 20, 10
PROMPT = "Mia has 3 bags with 4 apples each. She gives 5 apples away. How many are left? "


@dataclass(frozen=True)
class Measured:
    """CPU seconds and MiB of one process."""

    seconds: float
    mebibytes: float


@dataclass(frozen=True)
class Line:
    """One line of the table; `goal` and `figure` in the unit of the line. A line without a goal is for orientation."""

    what: str
    goal: float | None
    figure: float
    unit: str

    def __str__(self) -> str:
        goal, verdict = ("", "") if self.goal is None else (self._spelled(self.goal), self._verdict(self.goal))
        return f"| {self.what} | {goal} | {self._spelled(self.figure)} | {verdict} |"

    def _spelled(self, value: float) -> str:
        return f"{value:,.0f} {self.unit}" if value >= 100 else f"{value:.3g} {self.unit}"

    def _verdict(self, goal: float) -> str:
        return "yes" if self.figure <= goal else "**no**"


def measure(arguments: Sequence[str], cwd: Path | None = None) -> Measured:
    """Run a command to its end in a process of its own."""
    process = subprocess.Popen(arguments, cwd=cwd, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    said = process.stderr.read() if process.stderr else b""
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{' '.join(arguments)} ended with {process.returncode}: {said.decode(errors='replace')}")
    return Measured(usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


def median(arguments: Sequence[str], before: Callable[[], None] | None = None, rounds: int = 3) -> Measured:
    """The median of some rounds; `before` is called ahead of each."""
    found = []
    for _ in range(rounds):
        if before is not None:
            before()
        found.append(measure(arguments))
    return Measured(statistics.median(m.seconds for m in found), max(m.mebibytes for m in found))


def make_runs(root: Path, count: int, examples: int = 40, rows: int = 50) -> None:
    """`count` run folders: 20 losses, 10 datasets, and as many seeds as that takes."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    generator = random.Random(0)
    extra = {f"group{i}": {f"key{j}": i * j for j in range(10)} for i in range(9)}
    for number in range(count):
        seed, cell = divmod(number, LOSSES * DATASETS)
        loss, dataset = f"loss_{cell % LOSSES:02d}" if cell % LOSSES else "cross_entropy", f"set_{cell // LOSSES}"
        run_id, group = f"{number:016x}", f"{cell:016x}"
        folder = root / f"{loss}-tiny-{dataset}-s{seed}-{run_id}"
        folder.mkdir(parents=True)
        em = min(1.0, max(0.0, 0.4 + 0.01 * (cell % LOSSES) + generator.gauss(0, 0.02)))
        config = {"seed": seed, "loss": {"terms": {loss: {"weight": 1.0, "scope": "answer"}}}, **extra}
        identity = {
            "schema": 1, "id": run_id, "group": group, "name": folder.name, "study": root.name, "loss": loss,
            "model": "tiny", "dataset": dataset, "seed": seed, "attempt": 1, "created": "2026-11-30T16:00:00+00:00",
            "config": config, "versions": {"lossbench": "0.1.0", "torch": "2.13.0"}, "git": None, "wandb": None,
        }  # fmt: skip
        metrics = {
            "test/em": em, "test/ppl": math.exp(1 - em), "test/nll": 1 - em, "val/nll": 1.1 - em,
            "time/train_s": 60.0 + cell % LOSSES, "time/eval_s": 9.0, "perf/tokens_per_s": 4000.0,
            "test/confidence/ece": 0.1,
            **{f"test/text/m{i}": generator.random() for i in range(33)},
        }  # fmt: skip
        result = {
            "schema": 1, "id": run_id, "status": "finished", "error": None, "metrics": metrics,
            "checkpoint": {"step": 100, "criterion": "val/nll", "value": 1.1 - em},
            "finished": "2026-11-30T16:01:30+00:00",
        }  # fmt: skip
        log = (
            {"step": 10 * i, "time": i, "train/cross_entropy": 2 / math.sqrt(i), "val/nll": 1.5 / math.sqrt(i)}
            for i in range(1, rows + 1)
        )
        (folder / "run.json").write_text(json.dumps(identity))
        (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in log))
        (folder / "result.json").write_text(json.dumps(result))
        answered = [
            {
                "id": f"test-{i}", "split": "test", "prompt": PROMPT + str(i), "completion": "Let us count. #### 7",
                "gold": "7", "prediction": "7", "em": generator.random() < em, "nll_sum": generator.random() * 9,
                "n_tokens": 20, "mean_logprob": -generator.random(),
            }
            for i in range(examples)
        ]  # fmt: skip
        if answered:
            pq.write_table(pa.Table.from_pylist(answered), folder / "examples.parquet")


WANDB_LOGS = """
import os, sys
os.environ.update(WANDB_MODE="offline", WANDB_SILENT="true", WANDB_ERROR_REPORTING="false")
import wandb
from lossbench.tracking.wandb_run import SETTINGS
for n in range(int(sys.argv[2])):
    seed, cell = divmod(n, 200)
    config = {"loss": f"loss_{cell % 20:02d}", "model": "tiny", "dataset": f"set_{cell // 20}", "seed": seed,
              "study": "s", "group": f"{cell:016x}", "name": f"r{n}", "attempt": 1,
              "config": {"a": {f"k{i}": i for i in range(50)}}}
    run = wandb.init(project="p", id=f"{n:016x}", group=config["group"], config=config, dir=sys.argv[1],
                     reinit="finish_previous", settings=wandb.Settings(**SETTINGS))
    for step in range(50):
        run.log({"trainer/global_step": step, "train/cross_entropy": 1 / (step + 1), "val/nll": 2 / (step + 1)})
    run.summary.update({"test/em": 0.5, "test/ppl": 2.0, "val/nll": 0.1})
    run.finish(exit_code=0)
wandb.teardown()
"""


def make_logs(root: Path, count: int) -> None:
    """`count` offline logs, written by wandb (about a minute for a thousand)."""
    root.mkdir(parents=True)
    subprocess.run([sys.executable, "-c", WANDB_LOGS, str(root), str(count)], check=True, capture_output=True)


def lines(runs: int, many: int) -> list[Line]:
    """All figures."""
    found = [Line("`lossbench --help`", 0.4, median([*COMMAND, "--help"], rounds=5).seconds, "s CPU")]
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        make_runs(root / "study", runs)
        count = f"assert len(collect([{str(root / 'study')!r}]).records) == {runs}"
        read = [sys.executable, "-c", f"from lossbench.report.collect import collect; {count}"]
        found.append(Line(f"{runs:,} new records read", 3.0, median(read).seconds, "s CPU"))
        report = [*COMMAND, "report", str(root / "study"), "--out", str(root / "out")]

        def forget() -> None:
            (root / "out" / ".cache" / "report.json").unlink(missing_ok=True)

        html = median([*report, "--format", "html", "--format", "json"], forget)
        found.append(Line(f"{runs:,} new runs to page and JSON, curves and examples read", None, html.seconds, "s CPU"))
        new = median(report, forget)
        found.append(Line(f"{runs:,} new runs to every default format", 3.0, new.seconds, "s CPU"))
        found.append(Line(f"{runs:,} unchanged runs", 1.0, median(report).seconds, "s CPU"))
        size = (root / "out" / "report.html").stat().st_size / 1e6
        found.append(Line(f"page of {runs:,} runs", 1.0, size, "MB"))
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        make_logs(root / "logs", runs)
        log_report = [*COMMAND, "report", str(root / "logs"), "--out", str(root / "out"), "--format", "html"]
        new = median([*log_report, "--no-cache"])
        found.append(Line(f"{runs:,} new wandb logs to a page", 6.0, new.seconds, "s CPU"))
        measure(log_report)
        found.append(Line(f"{runs:,} unchanged wandb logs", 1.0, median(log_report).seconds, "s CPU"))
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        make_runs(root / "study", many)
        used = measure([*COMMAND, "report", str(root / "study"), "--out", str(root / "out")])
        found.append(Line(f"{many:,} runs to every default format, memory", 1000.0, used.mebibytes, "MiB"))
        found.append(Line(f"{many:,} runs to every default format, time", None, used.seconds, "s CPU"))
    return found


def table(found: Sequence[Line]) -> str:
    """The figures as Markdown."""
    rows = map(str, found)
    return "\n".join(["| what | goal, at most | measured | met |", "|---|---:|---:|---|", *rows])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1000, help="1000 are written to the results")
    parser.add_argument("--many", type=int, default=10_000, help="for the memory")
    asked = parser.parse_args()
    text = table(lines(asked.runs, asked.many))
    print(text)
    if (asked.runs, asked.many) == (1000, 10_000):
        machine = f"Python {platform.python_version()}, {os.cpu_count()} cores, {platform.machine()}"
        head = f"# Speed and memory of reports\n\nWritten by `python benchmarks/report.py` ({machine}).\n\n"
        foot = (
            "\n\nA thousand runs of wandb's service take three requests, one of them for the user "
            "(tests/report/sources/test_wandb_api.py counts them).\n"
        )
        RESULTS.write_text(head + text + foot)


if __name__ == "__main__":
    main()
