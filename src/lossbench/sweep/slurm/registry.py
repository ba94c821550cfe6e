"""Which jobs were submitted for which runs: `jobs.jsonl` in the study's folder.

Every line is an event, and none is ever changed:

{"event": "intent", "token": ..., "runs": [ids], "settings": {...}}    before sbatch is called
{"event": "submitted", "token": ..., "job": "123"}                     its answer: task k of job 123 is run k

The token is the job's comment as well, so that an intent without an answer (the launcher was killed in between) can be
asked for at SLURM.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lossbench.errors import LossbenchError
from lossbench.sweep import lines
from lossbench.sweep.slurm import client

FILE = "jobs.jsonl"
COMMENT = "lossbench:"


@dataclass(frozen=True)
class Submission:
    """One sbatch: task k of the array `job` is `runs[k]` (ids of runs)."""

    token: str
    runs: tuple[str, ...]
    settings: Mapping[str, Any]
    time: float
    job: str | None

    def tasks(self) -> dict[str, str]:
        """Id of the SLURM task -> id of the run."""
        return {f"{self.job}_{number}": run for number, run in enumerate(self.runs)} if self.job else {}


def intend(study: Path, token: str, runs: Sequence[str], settings: Mapping[str, Any]) -> None:
    """Note what is about to be submitted."""
    lines.append(
        study / FILE,
        {"event": "intent", "token": token, "runs": list(runs), "settings": dict(settings), "time": time.time()},
    )


def submitted(study: Path, token: str, job: str) -> None:
    """Note the id that sbatch answered with."""
    lines.append(study / FILE, {"event": "submitted", "token": token, "job": job, "time": time.time()})


def refused(study: Path, token: str) -> None:
    """Note that sbatch refused, so that nobody looks for the job."""
    lines.append(study / FILE, {"event": "refused", "token": token, "time": time.time()})


def submissions(study: Path) -> list[Submission]:
    """All submissions of a study in order; one whose answer was lost has no job."""
    found: dict[str, Submission] = {}
    for line in lines.read(study / FILE):
        with suppress(KeyError, TypeError):
            token = line["token"]
            match line["event"]:
                case "intent":
                    found[token] = Submission(token, tuple(line["runs"]), line["settings"], line["time"], None)
                case "submitted" if token in found:
                    before = found[token]
                    found[token] = Submission(token, before.runs, before.settings, before.time, str(line["job"]))
                case "refused":
                    found.pop(token, None)
    return list(found.values())


def recover(study: Path) -> list[Submission]:
    """`submissions`, after asking SLURM for those whose answer was lost."""
    found = submissions(study)
    lost = {submission.token for submission in found if submission.job is None}
    if not lost:
        return found
    with suppress(LossbenchError):
        for job, comment in client.by_comment(COMMENT).items():
            if (token := comment.removeprefix(COMMENT)) in lost:
                submitted(study, token, job)
    return submissions(study)


def latest_tasks(found: Sequence[Submission]) -> dict[str, str]:
    """Id of the run -> id of the SLURM task that it was last submitted as."""
    return {run: task for submission in found for task, run in submission.tasks().items()}
