"""The attempts of a run: every start of it in a job, how it ended, and how far it came.

`attempts.jsonl` in the run's folder has a line for every start and one for every end; a start without an end was killed
together with its job. The cluster's own counter is not used: it forgets.
"""

from __future__ import annotations

import json
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lossbench.sweep import lines

FILE = "attempts.jsonl"
LARGEST_HEADER = 1 << 26  # bytes; the size that a damaged file names may be anything


@dataclass(frozen=True)
class Attempt:
    """One start of a run. Times are seconds since 1970; steps are optimizer steps."""

    number: int  # from 1
    job: str
    host: str
    started: float
    ended: float | None = None
    how: str | None = None  # finished, failed, interrupted, killed, fenced
    code: int | None = None  # the exit code of the run's process; negative: a signal
    step: int = 0  # the last one when the attempt ended; when it started, while it has not ended

    @property
    def is_open(self) -> bool:
        """Started, and not known to have ended."""
        return self.how is None


def begin(folder: Path, job: str, host: str) -> Attempt:
    """Note a start."""
    attempt = Attempt(len(read(folder)) + 1, job, host, time.time(), step=last_step(folder))
    lines.append(
        folder / FILE,
        {"event": "start", "attempt": attempt.number, "job": job, "host": host, "time": attempt.started,
         "step": attempt.step},
    )  # fmt: skip
    return attempt


def end(folder: Path, attempt: Attempt, how: str, code: int | None) -> Attempt:
    """Note the end of an attempt; returns it as it is now."""
    ended = replace(attempt, ended=time.time(), how=how, code=code, step=last_step(folder))
    lines.append(
        folder / FILE,
        {"event": "end", "attempt": ended.number, "how": how, "code": code, "time": ended.ended, "step": ended.step},
    )
    return ended


def read(folder: Path) -> list[Attempt]:
    """All attempts in order; lines that a crash cut off are left out."""
    found: dict[int, Attempt] = {}
    for line in lines.read(folder / FILE):
        with suppress(KeyError, TypeError, ValueError):
            number = int(line["attempt"])
            if line["event"] == "start":
                found[number] = Attempt(number, line["job"], line["host"], line["time"], step=line["step"])
            elif number in found:
                found[number] = replace(
                    found[number], ended=line["time"], how=line["how"], code=line["code"], step=line["step"]
                )
    return list(found.values())


def without_progress(attempts: list[Attempt]) -> int:
    """How many of the last attempts in a row came no further than those before them."""
    best, in_a_row = 0, 0
    for attempt in attempts:
        in_a_row = 0 if attempt.step > best else in_a_row + 1
        best = max(best, attempt.step)
    return in_a_row


def last_step(folder: Path) -> int:
    """The last optimizer step that the run's log or its checkpoint knows of; 0 before the first."""
    return max(_logged_step(folder), _saved_step(folder))


def _logged_step(folder: Path) -> int:
    try:
        with (folder / "metrics.jsonl").open("rb") as log:
            log.seek(0, 2)
            log.seek(max(0, log.tell() - 65536))
            logged = log.read().splitlines()
    except FileNotFoundError:
        return 0
    for line in reversed(logged):
        try:
            return int(json.loads(line)["step"])
        except (json.JSONDecodeError, KeyError, TypeError, ValueError):
            continue
    return 0


def _saved_step(folder: Path) -> int:
    """From the headers of the checkpoints that a run goes on from; their tensors are not read."""
    steps = [0]
    for name in ("last", "previous"):
        with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
            with (folder / "checkpoints" / f"{name}.safetensors").open("rb") as data:
                size = int.from_bytes(data.read(8), "little")
                header: dict[str, Any] = json.loads(data.read(min(size, LARGEST_HEADER)))
            state = dict(json.loads(header["__metadata__"]["state"])["map"])
            steps.append(int(dict(state["done"]["map"])["step"]))
    return max(steps)
