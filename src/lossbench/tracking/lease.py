"""Who may write a run's folder when jobs run on several nodes.

The lock of `open_record` is the system's: it is certain on one machine, and not on every shared file system between
machines. A cluster makes copies of a job: a node that lost its network is declared dead and its jobs are started
elsewhere, while the first copy still runs. So a job claims the folder before it starts to write:

.claim            who holds it: the newest claim counts
.alive-<token>    touched by the holder again and again; removed when it has stopped writing

A copy of the same job takes the folder over: it writes its claim, and waits until the earlier holder has stopped (it
sees the claim, ends its process, and removes its file), or has been silent for `STALE` seconds. A holder that is no
longer named must not write: `check` raises. Another job never takes a folder over from a live holder.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import platform
import time
import uuid
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

from lossbench.errors import LossbenchError
from lossbench.tracking.files import write_json

STALE = 60.0  # seconds without a sign of life after which a holder is dead; it renews far more often
VARIABLE = "LOSSBENCH_LEASE"  # the token of the holder, for the process that writes on its behalf


class LeaseLostError(LossbenchError):
    """Another copy of this job has taken the folder over; this one must not write any more."""


class LeaseHeldError(LossbenchError):
    """A live process of another job is writing the folder."""


@dataclass(frozen=True)
class Holder:
    """A process that claimed a folder."""

    token: str
    job: str
    host: str
    pid: int
    started: str  # with the pid it names one process for good


@dataclass(frozen=True)
class Lease:
    """A claimed folder."""

    folder: Path
    holder: Holder

    @property
    def token(self) -> str:
        return self.holder.token

    def renew(self) -> bool:
        """Give a sign of life; False where another copy has taken the folder over."""
        if not self.is_mine():
            return False
        (self.folder / f".alive-{self.token}").touch()
        return True

    def is_mine(self) -> bool:
        holder = read(self.folder)
        return holder is not None and holder.token == self.token

    def release(self) -> None:
        """Say that nothing will be written any more."""
        (self.folder / f".alive-{self.token}").unlink(missing_ok=True)


def claim(folder: Path, job: str, *, stale: float = STALE, pause: float = 0.5) -> Lease:
    """Claim a folder for `job`, and wait until an earlier copy of the same job has stopped writing.

    Raises:
        LeaseHeldError: a live process of another job holds it.
        LeaseLostError: a still newer copy claimed it meanwhile.
    """
    before = read(folder)
    pid = os.getpid()
    lease = Lease(folder, Holder(uuid.uuid4().hex, job, platform.node(), pid, _start_of(pid) or ""))
    mine = folder / f".alive-{lease.token}"
    mine.touch()
    if before and before.job != job and is_alive(folder, before, mine, stale):
        mine.unlink()
        raise LeaseHeldError(
            f"{folder} is being written by job {before.job} on {before.host}; wait for it, or cancel it."
        )
    write_json(folder / ".claim", asdict(lease.holder))
    while before and is_alive(folder, before, mine, stale):
        time.sleep(pause)
        if not lease.renew():
            break
    if not lease.is_mine():
        mine.unlink(missing_ok=True)
        raise LeaseLostError(f"{folder} was taken over by a newer copy of job {job}.")
    for left in folder.glob(".alive-*"):
        if left != mine:
            left.unlink(missing_ok=True)
    return lease


def check(folder: Path) -> None:
    """Raise unless this process may write: it acts for the holder, or nobody alive holds the folder."""
    holder, token = read(folder), os.environ.get(VARIABLE)
    if token:
        if is_lost(folder):
            assert holder is not None
            raise LeaseLostError(f"{folder} was taken over by job {holder.job} on {holder.host}; this copy stops.")
    elif holder and is_alive(folder, holder):
        raise LeaseHeldError(
            f"{folder} is being written by job {holder.job} on {holder.host}; wait for it, or cancel it."
        )


def is_lost(folder: Path) -> bool:
    """Whether this process acted for a holder who is no longer the one named."""
    holder, token = read(folder), os.environ.get(VARIABLE)
    return bool(token and holder and holder.token != token)


def read(folder: Path) -> Holder | None:
    """Who claimed the folder last."""
    try:
        return Holder(**json.loads((folder / ".claim").read_text(encoding="utf-8")))
    except (FileNotFoundError, json.JSONDecodeError, TypeError):
        return None


def is_alive(folder: Path, holder: Holder, clock: Path | None = None, stale: float = STALE) -> bool:
    """Whether a holder may still be writing. Ages are taken from the file system's clock (a file just touched), since
    nodes' own clocks differ."""
    try:
        last = (folder / f".alive-{holder.token}").stat().st_mtime
    except FileNotFoundError:
        return False
    if holder.host == platform.node() and _start_of(holder.pid) != holder.started and not is_locked(folder):
        return False
    if clock is not None:
        clock.touch()
    now = clock.stat().st_mtime if clock is not None else time.time()
    return now - last <= stale


def is_locked(folder: Path) -> bool:
    """Whether a process on this machine has the record open."""
    with contextlib.suppress(FileNotFoundError), (folder / ".lock").open("r+") as file:
        return not take(file)
    return False


def take(lock: IO[str]) -> bool:
    """Take a lock, which the system frees however the process ends; False where somebody else has it."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _start_of(pid: int) -> str | None:
    """When a process started, in the kernel's ticks; None where there is none (or no /proc)."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else fields[19]
