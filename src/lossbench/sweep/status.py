"""Where the runs of a study stand: their folders, their jobs, and what was last heard of them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lossbench.errors import ConfigError, nearest
from lossbench.sweep import attempts
from lossbench.sweep.child import LOG, is_running, record_failure
from lossbench.sweep.outcome import Kind, Outcome, judge
from lossbench.sweep.plan import run_folders
from lossbench.sweep.slurm import registry
from lossbench.sweep.slurm.client import FINAL, JobState
from lossbench.sweep.slurm.submit import RunRef
from lossbench.sweep.slurm.watch import HIDDEN, Watcher
from lossbench.tracking.record import read_result

BATCH_LOG_BYTES = 20_000


@dataclass(frozen=True)
class Standing:
    """One run of a study and where it stands."""

    run: RunRef
    outcome: Outcome
    task: str | None  # its last SLURM job, as SLURM writes it
    node: str

    @property
    def is_active(self) -> bool:
        return self.outcome.kind.is_active


def expected(study: Path) -> list[RunRef]:
    """The runs of a study: those that its sweeps expect, in their order, then what else has a folder."""
    folders = run_folders(study)
    found = {}
    with suppress(FileNotFoundError, json.JSONDecodeError, KeyError, TypeError):
        for run in json.loads((study / "sweep.json").read_text(encoding="utf-8"))["runs"]:
            name, run_id = str(run["name"]), str(run["id"])
            found[run_id] = RunRef(run_id, name, folders.get(run_id, study / f"{name}-{run_id}"))
    for run_id, folder in sorted(folders.items(), key=lambda item: item[1].name):
        if run_id not in found and (folder / "run.json").exists():
            found[run_id] = RunRef(run_id, folder.name.removesuffix(f"-{run_id}"), folder)
    return list(found.values())


def standings(study: Path, runs: Sequence[RunRef], watcher: Watcher | None = None) -> list[Standing]:
    """Every run's standing, by its record and by the last known state of its job.

    A run whose job ended without that its process could say why gets its record written here.
    """
    watcher = watcher or Watcher.of(study)
    tasks = registry.latest_tasks(registry.submissions(study))
    return [_standing(study, run, tasks.get(run.id), watcher) for run in runs]


def _standing(study: Path, run: RunRef, task: str | None, watcher: Watcher) -> Standing:
    result = read_result(run.folder)
    if result and result["status"] == "finished":
        return Standing(run, Outcome(Kind.FINISHED), task, _host(run))
    job = watcher.state(task) if task else None
    if task and job is None:
        job = JobState("PENDING", "submitted, not seen yet")
    started = (run.folder / "run.json").exists()
    if (job is None or job.state in FINAL) and result is None and started and is_running(run.folder):
        return Standing(run, Outcome(Kind.RUNNING), None, _host(run))
    outcome = judge(result, started, job, batch_log(study, task) if task and job and job.state in FINAL else "")
    if outcome.kind.is_failure and (result is None or result["status"] != "failed") and run.folder.is_dir():
        kinds = {Kind.OUT_OF_MEMORY: "OutOfMemory"}
        record_failure(run.folder, run.id, kinds.get(outcome.kind, "Ended"), outcome.reason)
    return Standing(run, outcome, task, (job.node if job else "") or _host(run))


def _host(run: RunRef) -> str:
    with suppress(FileNotFoundError, json.JSONDecodeError):
        return str(json.loads((run.folder / "run.json").read_text(encoding="utf-8")).get("host", ""))
    return ""


def batch_logs(study: Path, task: str) -> list[Path]:
    """What SLURM and the batch script of a job wrote, beside the run's own log."""
    return [file for file in sorted((study / HIDDEN).glob(f"{task}_*_log.*")) if file.stat().st_size]


def batch_log(study: Path, task: str) -> str:
    """The end of a job's batch log."""
    parts = []
    for end in ("out", "err"):
        with suppress(OSError), (study / HIDDEN / f"{task}_0_log.{end}").open("rb") as log:
            log.seek(0, 2)
            log.seek(max(0, log.tell() - BATCH_LOG_BYTES))
            parts.append(log.read().decode(errors="replace"))
    return "\n".join(parts)


def tail(run: RunRef, lines: int) -> list[str]:
    """The last lines of a run's log; of its traceback where it has no log."""
    for name in (LOG, "error.txt"):
        with suppress(OSError), (run.folder / name).open("rb") as log:
            log.seek(0, 2)
            log.seek(max(0, log.tell() - 400 * lines))
            return [line for line in log.read().decode(errors="replace").splitlines() if line.strip()][-lines:]
    return []


@dataclass(frozen=True)
class Progress:
    """How far a run is. Unknown numbers are None."""

    step: int
    steps: int | None
    steps_per_second: float | None

    @property
    def seconds_left(self) -> float | None:
        """Of training."""
        if self.steps is None or not self.steps_per_second:
            return None
        return max(0, self.steps - self.step) / self.steps_per_second


def progress(run: RunRef) -> Progress:
    """From the run's log of metrics and its configuration."""
    step = attempts.last_step(run.folder)
    points = [(line["step"], line["time"]) for line in _last_metrics(run.folder) if "time" in line]
    speed = None
    if len(points) > 1 and points[-1][1] > points[0][1] and points[-1][0] > points[0][0]:
        speed = (points[-1][0] - points[0][0]) / (points[-1][1] - points[0][1])
    return Progress(step, _steps(run.folder), speed)


def describe(run: RunRef) -> dict[str, Any]:
    """Loss, model, dataset and seed of a run that has begun, and its metrics; None and nothing where it has not."""
    about: dict[str, Any] = {}
    with suppress(FileNotFoundError, json.JSONDecodeError):
        about = json.loads((run.folder / "run.json").read_text(encoding="utf-8"))
    metrics = (read_result(run.folder) or {}).get("metrics") or {}
    return {key: about.get(key) for key in ("loss", "model", "dataset", "seed")} | {"metrics": metrics}


def _steps(folder: Path) -> int | None:
    """Optimizer steps of the whole run, where its record says them or the configuration fixes them."""
    if result := read_result(folder):
        total = result.get("metrics", {}).get("data/n_steps")
        if isinstance(total, int | float):
            return int(total)
    with suppress(FileNotFoundError, json.JSONDecodeError, KeyError, TypeError):
        run = json.loads((folder / "run.json").read_text(encoding="utf-8"))
        return run["config"]["trainer"]["max_steps"] or run.get("steps")
    return None


def _last_metrics(folder: Path) -> list[dict[str, Any]]:
    with suppress(OSError), (folder / "metrics.jsonl").open("rb") as log:
        log.seek(0, 2)
        log.seek(max(0, log.tell() - 16384))
        return list(_whole_lines(log.read()))
    return []


def _whole_lines(data: bytes) -> Iterator[dict[str, Any]]:
    for text in data.splitlines():
        with suppress(json.JSONDecodeError, UnicodeDecodeError):
            line = json.loads(text)
            if isinstance(line, dict) and isinstance(line.get("step"), int):
                yield line


def find_run(runs: Path, wanted: str) -> tuple[Path, RunRef]:
    """The study and run that an id, the beginning of one, a name, a folder or a job's number means.

    Raises:
        ConfigError: none, or more than one.
    """
    if (Path(wanted) / "run.json").exists() or (Path(wanted) / "job.yaml").exists():
        folder = Path(wanted)
        return folder.parent, RunRef(folder.name.rpartition("-")[2], folder.name.rpartition("-")[0], folder)
    studies = [folder for folder in sorted(runs.glob("*")) if folder.is_dir()] if runs.is_dir() else []
    known: list[str] = []
    found: dict[str, tuple[Path, RunRef]] = {}
    for study in studies:
        tasks = registry.latest_tasks(registry.submissions(study))
        for run in expected(study):
            known += [run.id, run.name]
            if run.id.startswith(wanted) or wanted in (run.name, run.folder.name, tasks.get(run.id)):
                found[str(run.folder)] = (study, run)
    if not found:
        raise ConfigError(f"No run below {runs} is called {wanted}.{nearest(wanted, known) if known else ''}")
    if len(found) > 1:
        names = ", ".join(f"{run.name} ({run.id})" for _, run in list(found.values())[:5])
        raise ConfigError(f"{wanted} means {len(found)} runs: {names}. Give more of the id.")
    return next(iter(found.values()))


def study_folder(runs: Path, study: str) -> Path:
    """The folder of a study that is given by its name below `runs`, or by its path."""
    for folder in (runs / study, Path(study)):
        if folder.is_dir():
            return folder
    known = [folder.name for folder in runs.glob("*") if folder.is_dir()] if runs.is_dir() else []
    raise ConfigError(f"There is no study {study} below {runs}, and no such folder.{nearest(study, known)}")
