"""How a run stands, judged from its own record and from what SLURM says of its job.

The record counts first: a run is finished when `result.json` says so, whatever SLURM thinks (it calls a job COMPLETED
that left by `sys.exit(0)`); and SLURM knows what no record can say (the job was cancelled, its node was lost).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from lossbench.sweep.slurm.client import FINAL, JobState


class Kind(StrEnum):
    """How a run stands."""

    FINISHED = "finished"
    FAILED = "failed"
    OUT_OF_MEMORY = "out of memory"
    TIMED_OUT = "timed out"
    PREEMPTED = "preempted"
    CANCELLED = "cancelled"
    NODE_LOST = "node lost"
    INTERRUPTED = "interrupted"  # stopped by a signal outside of SLURM, or for a reason that nobody knows
    RUNNING = "running"
    PENDING = "pending"
    MISSING = "missing"  # not started, and not submitted

    @property
    def is_failure(self) -> bool:
        """Starting it again as it is would fail again."""
        return self in (Kind.FAILED, Kind.OUT_OF_MEMORY)

    @property
    def is_active(self) -> bool:
        """It may still change without anybody's doing."""
        return self in (Kind.RUNNING, Kind.PENDING)


BY_STATE = {
    "CANCELLED": Kind.CANCELLED,
    "REVOKED": Kind.CANCELLED,
    "TIMEOUT": Kind.TIMED_OUT,
    "DEADLINE": Kind.TIMED_OUT,
    "PREEMPTED": Kind.PREEMPTED,
    "NODE_FAIL": Kind.NODE_LOST,
    "BOOT_FAIL": Kind.NODE_LOST,
}
OUT_OF_MEMORY_SIGNS = ("Exceeded job memory limit", "exceeded memory limit", "oom-kill", "oom_kill", "Out Of Memory")


@dataclass(frozen=True)
class Outcome:
    """A run's standing, and a sentence on why."""

    kind: Kind
    reason: str = ""


def judge(result: Mapping[str, Any] | None, started: bool, job: JobState | None, batch_log: str = "") -> Outcome:
    """Classify a run.

    Args:
        result: its `result.json`.
        started: whether it ever began (its folder has a `run.json`).
        job: its last job, None where it has none (a local run).
        batch_log: the end of what the job's batch script and SLURM itself wrote.
    """
    status = str(result["status"]) if result else None
    error = (result or {}).get("error") or {}
    message = str(error.get("message", ""))
    if status == "finished":
        return Outcome(Kind.FINISHED)
    if job is not None and job.state not in FINAL:
        return _active(job)
    if job is not None and (job.step == "OUT_OF_MEMORY" or job.state == "OUT_OF_MEMORY" or _says_oom(batch_log)):
        reason = _line_with(batch_log) or "SLURM ended it: it used more memory than it asked for."
        return Outcome(Kind.OUT_OF_MEMORY, reason)
    if status == "failed":
        kind = Kind.OUT_OF_MEMORY if error.get("type") in ("OutOfMemory", "OutOfMemoryError") else Kind.FAILED
        return Outcome(kind, message)
    if job is not None and job.state in BY_STATE:
        node = f" on {job.node}" if job.node else ""
        return Outcome(BY_STATE[job.state], f"SLURM: {job.state}{node}.")
    if status == "interrupted":
        return Outcome(Kind.INTERRUPTED, message or "It was stopped by a signal.")
    if job is not None:
        return _ended_without_record(job, batch_log)
    return Outcome(Kind.INTERRUPTED, "It began and left no record of its end.") if started else Outcome(Kind.MISSING)


def _active(job: JobState) -> Outcome:
    if job.state == "PENDING":
        held = "held: " if job.reason.startswith(("JobHeld", "launch failed")) else ""
        return Outcome(Kind.PENDING, f"{held}{job.reason}" if job.reason else "")
    return Outcome(Kind.RUNNING, "" if job.state == "RUNNING" else job.state.lower())


def _ended_without_record(job: JobState, batch_log: str) -> Outcome:
    if job.state == "GONE":
        return Outcome(Kind.INTERRUPTED, "SLURM has forgotten its job, and it left no record.")
    if job.exit_code == "0:53":
        reason = "The node could not write the job's log: is the folder on a file system that all nodes share?"
        return Outcome(Kind.FAILED, reason)
    last = next((line.strip() for line in reversed(batch_log.splitlines()) if line.strip()), "")
    code = f" with exit code {job.exit_code}" if job.exit_code else ""
    return Outcome(Kind.FAILED, f"Its job ended{code} and left no record.{f' Last line: {last}' if last else ''}")


def _says_oom(text: str) -> bool:
    return any(sign in text for sign in OUT_OF_MEMORY_SIGNS)


def _line_with(text: str) -> str:
    found = [line.strip() for line in text.splitlines() if _says_oom(line)]
    return found[-1][:300] if found else ""
