"""Questions to a SLURM cluster, each with a time limit: while slurmctld is down its clients hang.

States come from `squeue`, which needs no accounting, and from `sacct` for jobs that slurmctld has forgotten.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from lossbench.errors import LossbenchError
from lossbench.sweep.process import belongs_to_a_job

TIMEOUT = 25.0  # seconds
CHUNK = 100  # job ids in a question
AWAY = ("Unable to contact slurm", "Connection refused", "Socket timed out", "Problem talking to the database")
# Which states are final is listed, not which are not: what SLURM adds one day must not end a sweep early.
FINAL = frozenset(
    "BOOT_FAIL CANCELLED COMPLETED DEADLINE FAILED NODE_FAIL OUT_OF_MEMORY PREEMPTED REVOKED TIMEOUT GONE".split()
)
# A job may be in these for a moment before it is queued again.
MAY_COME_BACK = frozenset("PREEMPTED NODE_FAIL BOOT_FAIL".split())


class SlurmError(LossbenchError):
    """SLURM refused something."""

    exit_code = 4


class UnreachableError(SlurmError):
    """slurmctld or slurmdbd does not answer."""


@dataclass(frozen=True)
class JobState:
    """A job as SLURM sees it. `state` is SLURM's word, GONE where it knows nothing of the job any more; `step` is the
    worst state of its steps, which accounting alone knows; `exit_code` is `code:signal`."""

    state: str
    reason: str = ""
    node: str = ""
    exit_code: str = ""
    step: str = ""


def ask(*command: str) -> str:
    """The stdout of a client command.

    Raises:
        UnreachableError: no answer in time, or none from slurmctld or slurmdbd.
        SlurmError: the command was refused, or is not there.
    """
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, env=environment())
    except FileNotFoundError:
        raise SlurmError(f"{command[0]} is not on the PATH: this is no login node of a SLURM cluster.") from None
    except subprocess.TimeoutExpired:
        raise UnreachableError(f"{command[0]} has not answered within {TIMEOUT:.0f} s.") from None
    if done.returncode:
        raise error(f"{command[0]}: {' '.join(done.stderr.split()) or f'exit code {done.returncode}'}")
    return done.stdout


def error(said: str) -> SlurmError:
    """The error for what a client command said."""
    return UnreachableError(said) if any(sign in said for sign in AWAY) else SlurmError(said)


def environment() -> dict[str, str]:
    """This process's environment without the job that it may be part of: clients read their options from it."""
    return {key: value for key, value in os.environ.items() if not belongs_to_a_job(key)}


def config() -> dict[str, str]:
    """`scontrol show config`."""
    pairs = (line.partition("=") for line in ask("scontrol", "show", "config").splitlines())
    return {key.strip(): value.strip() for key, sign, value in pairs if sign}


def partitions() -> list[dict[str, str]]:
    """`scontrol show partition`, a mapping each."""
    lines = ask("scontrol", "show", "partition", "-o").splitlines()
    return [dict(field.split("=", 1) for field in line.split() if "=" in field) for line in lines]


def queued(jobs: Iterable[str]) -> dict[str, JobState]:
    """States of jobs and array tasks that slurmctld knows, the ended ones included.

    Args:
        jobs: ids as SLURM writes them, 123 or 123_4.
    """
    found = {}
    for some in _chunks(jobs):
        try:
            text = ask("squeue", "-h", "-r", "-t", "all", "-o", "%i|%T|%r|%N", "-j", ",".join(some))
        except SlurmError as error:
            if "Invalid job id" not in str(error):  # all of them are forgotten
                raise
            continue
        for line in text.splitlines():
            job, state, reason, node = line.split("|", 3)
            found[job.strip()] = JobState(state, reason if reason != "None" else "", node)
    return found


def accounted(jobs: Iterable[str]) -> dict[str, JobState]:
    """The same from accounting, with exit codes and the states of steps: an out-of-memory kill is one of a step."""
    found: dict[str, JobState] = {}
    for some in _chunks(jobs):
        text = ask("sacct", "-n", "-P", "-o", "JobID,State,ExitCode,NodeList", "-j", ",".join(some))
        found |= parse_accounting(text)
    return found


def parse_accounting(text: str) -> dict[str, JobState]:
    """`sacct -n -P -o JobID,State,ExitCode,NodeList`; tasks that wait come as one range and are left out."""
    found: dict[str, JobState] = {}
    for line in text.splitlines():
        job, state, exit_code, node = line.split("|")[:4]
        word = state.split()[0] if state else ""  # `CANCELLED by 0`
        base, _, step = job.partition(".")
        if not step:
            if "[" not in base:
                found[base] = JobState(word, "", "" if node == "None assigned" else node, exit_code)
        elif base in found and word in ("OUT_OF_MEMORY", "FAILED", "CANCELLED") and found[base].step != "OUT_OF_MEMORY":
            found[base] = JobState(found[base].state, "", found[base].node, found[base].exit_code, word)
    return found


def cancel(jobs: Sequence[str]) -> None:
    """`scancel`; a job that has ended is no error."""
    for some in _chunks(jobs, bases=False):
        ask("scancel", *some)


def by_comment(prefix: str) -> dict[str, str]:
    """Array or job id -> comment, of this user's queued jobs whose comment begins with `prefix`."""
    found = {}
    for line in ask("squeue", "-h", "-t", "all", "-o", "%F|%k", "-u", str(os.getuid())).splitlines():
        job, _, comment = line.partition("|")
        if comment.startswith(prefix):
            found[job] = comment
    return found


def _chunks(jobs: Iterable[str], *, bases: bool = True) -> list[list[str]]:
    names = list(dict.fromkeys(job.partition("_")[0] if bases else job for job in jobs))
    return [names[start : start + CHUNK] for start in range(0, len(names), CHUNK)]
