"""What a sweep expects, and where each of its runs stands."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lossbench.config import RunConfig
from lossbench.identity import Identity, identify, reading_once
from lossbench.tracking.files import write_json
from lossbench.tracking.record import read_result


@dataclass(frozen=True)
class Job:
    """One run of a sweep: what to run, who it is, and its folder."""

    config: RunConfig
    identity: Identity
    folder: Path

    @property
    def state(self) -> str:
        """`finished`, `failed` or `interrupted` by its own record, else `missing`."""
        return recorded_state(self.folder)

    @property
    def reason(self) -> str:
        """Why it failed; empty otherwise."""
        result = read_result(self.folder)
        return str((result.get("error") or {}).get("message", "")) if result else ""


def recorded_state(folder: Path) -> str:
    """What a run's own record says: the status of result.json; `interrupted` where it began and never said how it
    ended; `missing` where it never began. Whether it is being run just now is not looked at."""
    if result := read_result(folder):
        return str(result["status"])
    return "interrupted" if (folder / "run.json").exists() else "missing"


def plan(configs: Sequence[RunConfig]) -> list[Job]:
    """One job a distinct run, in the given order: the same identity twice is one run."""
    jobs: dict[str, Job] = {}
    known: dict[tuple[str, str], tuple[Path, dict[str, Path]]] = {}  # its folder, and those of its runs by id
    with reading_once():
        for config in configs:
            identity = identify(config)
            if identity.id in jobs:
                continue
            key = (config.paths.runs, config.study)
            if key not in known:
                study = Path(config.paths.runs).expanduser() / config.study
                known[key] = study, run_folders(study)
            study, folders = known[key]
            jobs[identity.id] = Job(config, identity, folders.get(identity.id) or study / identity.folder)
    return list(jobs.values())


def states(jobs: Sequence[Job]) -> dict[str, str]:
    """The state of every job by its id; of those without a folder nothing is read."""
    studies = {job.folder.parent for job in jobs}
    present = {folder for study in studies for folder in run_folders(study).values()}
    return {job.identity.id: job.state if job.folder in present else "missing" for job in jobs}


def run_folders(study: Path) -> dict[str, Path]:
    """The run folders of a study by id; of two with one id, the first by name, as `find_folder` has it."""
    try:
        names = sorted(entry.name for entry in os.scandir(study) if "-" in entry.name)
    except FileNotFoundError:
        return {}
    return {name.rpartition("-")[2]: study / name for name in reversed(names)}


def expect(jobs: Sequence[Job], baseline: str | None = None) -> None:
    """Add the jobs to `sweep.json` of their studies, so that a report shows what is missing; `baseline` is the loss
    that the others are compared with."""
    for study in dict.fromkeys(job.folder.parent for job in jobs):
        study.mkdir(parents=True, exist_ok=True)
        file = study / "sweep.json"
        earlier = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {"runs": []}
        known = {run["id"]: run for run in earlier["runs"]}
        for job in jobs:
            if job.folder.parent == study:  # tags of tuning stay
                known[job.identity.id] = {**known.get(job.identity.id, {}), **_expected(job)}
        compared_with = baseline or earlier.get("baseline")
        named = {"baseline": compared_with} if compared_with else {}
        content = {"schema": 1, **named, "runs": list(known.values())}
        if content != earlier:  # the same command again changes nothing
            write_json(file, content)


def _expected(job: Job) -> dict[str, str | int]:
    config = job.config
    return {
        "id": job.identity.id,
        "group": job.identity.group,
        "name": job.identity.name,
        "loss": config.loss.name,
        "model": config.model.name,
        "dataset": config.dataset.name,
        "seed": config.seed,
    }
