"""What a sweep expects, and where each of its runs stands."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lossbench.config import RunConfig
from lossbench.identity import Identity, identify
from lossbench.tracking.files import write_json
from lossbench.tracking.record import find_folder, read_result


@dataclass(frozen=True)
class Job:
    """One run of a sweep."""

    config: RunConfig
    identity: Identity

    @property
    def folder(self) -> Path:
        return find_folder(self.config, self.identity)

    @property
    def state(self) -> str:
        """`finished`, `failed` or `interrupted` by its own record, else `missing`."""
        result = read_result(self.folder)
        return str(result["status"]) if result else "missing"

    @property
    def reason(self) -> str:
        """Why it failed; empty otherwise."""
        result = read_result(self.folder)
        return str((result.get("error") or {}).get("message", "")) if result else ""


def plan(configs: Sequence[RunConfig]) -> list[Job]:
    """One job a distinct run, in the given order: the same identity twice is one run."""
    jobs = {identity.id: Job(config, identity) for config in configs for identity in [identify(config)]}
    return list(jobs.values())


def expect(jobs: Sequence[Job]) -> None:
    """Add the jobs to `sweep.json` of their studies, so that a report shows what is missing."""
    for study in dict.fromkeys(job.folder.parent for job in jobs):
        study.mkdir(parents=True, exist_ok=True)
        file = study / "sweep.json"
        earlier = json.loads(file.read_text(encoding="utf-8"))["runs"] if file.exists() else []
        known = {run["id"]: run for run in earlier}
        known |= {job.identity.id: _expected(job) for job in jobs if job.folder.parent == study}
        write_json(file, {"schema": 1, "runs": list(known.values())})


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
