"""The process of a run, seen from the one that started it: whether it lives, and what its end means.

Light, since the supervisor of every job imports it.
"""

from __future__ import annotations

import signal
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from lossbench.tracking import lease
from lossbench.tracking.files import write_json

EXPECTED = "LOSSBENCH_RUN_ID"  # environment variable: the id of a frozen run; its process refuses to be another one
LOG = "log.txt"  # what the process prints
STOPS = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGUSR2)  # stop a run that can go on later


def is_running(folder: Path) -> bool:
    """Whether a process on this machine, or one with a live lease, writes the run's folder."""
    holder = lease.read(folder)
    return lease.is_locked(folder) or (holder is not None and lease.is_alive(folder, holder))


def is_stop(code: int) -> bool:
    """Whether an exit code (negative: a signal) means that somebody stopped the run, which is no failure of it."""
    return any(code in (-signum, 128 + signum) for signum in STOPS)


def why(folder: Path, code: int) -> tuple[str, str]:
    """(`Killed` or `Ended`, a sentence) on a process that ended without a word; with the last line of its log, where it
    had something to say."""
    if code == 0:
        return "Ended", "The run did not finish: its process left before the end, as by sys.exit(0)."
    last = ""
    if code > 0:
        with suppress(OSError):
            logged = (folder / LOG).read_text(encoding="utf-8", errors="replace").splitlines()
            last = next((line.strip() for line in reversed(logged) if line.strip()), "")
    sentence = f"The run did not finish: its process {describe(code)}.{f' {last}' if last else ''}"
    return "Killed" if code < 0 else "Ended", sentence


def describe(code: int) -> str:
    """`was killed by SIGKILL`, `ended with exit code 3`."""
    if code < 0:
        with suppress(ValueError):
            return f"was killed by {signal.Signals(-code).name}"
    return f"ended with exit code {code}"


def record_failure(folder: Path, run_id: str, kind: str, message: str) -> None:
    """A `result.json` for a run whose own process could not write one."""
    end: dict[str, Any] = {"schema": 1, "id": run_id, "status": "failed", "error": {"type": kind, "message": message}}
    now = datetime.now(UTC).isoformat(timespec="seconds")
    write_json(folder / "result.json", {**end, "metrics": {}, "checkpoint": None, "finished": now})
