"""The record of a run: a folder whose files say who it is, how it went, and what came out.

run.json         identity, before the first step
config.yaml      the frozen configuration
metrics.jsonl    one line a log call, append-only
examples.parquet one row an evaluated example
result.json      written last, by rename: its presence means that the run has ended, its status how
error.txt        the traceback of a failed run
"""

from __future__ import annotations

import json
import os
import platform
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

import yaml

from lossbench.config import RunConfig
from lossbench.errors import LossbenchError
from lossbench.identity import Identity
from lossbench.tracking import lease
from lossbench.tracking.files import strict, write_atomically, write_json
from lossbench.tracking.provenance import git, versions
from lossbench.tracking.redact import redacted
from lossbench.tracking.tracker import Tracker, open_tracker

SCHEMA = 1


class RunIsActiveError(LossbenchError):
    """Another process is writing this run's folder."""


def find_folder(config: RunConfig, identity: Identity) -> Path:
    """The run's folder: the one that ends in its id, whatever it was called, or a new name."""
    study = Path(config.paths.runs).expanduser() / config.study
    return next(iter(sorted(study.glob(f"*-{identity.id}"))), study / identity.folder)


def read_result(folder: Path) -> dict[str, Any] | None:
    """`result.json`, or None where the run has not ended."""
    try:
        return json.loads((folder / "result.json").read_text(encoding="utf-8"))
    except (FileNotFoundError, json.JSONDecodeError):
        return None


class Record:
    """An open run folder. `log` appends to metrics.jsonl and tells the tracker; closing writes the result."""

    def __init__(self, folder: Path, tracker: Tracker, metrics: IO[str]) -> None:
        self.folder = folder
        self._tracker = tracker
        self._metrics = metrics
        self._started = time.monotonic()
        self.lines = sum(1 for _ in (folder / "metrics.jsonl").open("rb"))
        self.notes: list[str] = []  # what a reader of the numbers must know
        self.summary: dict[str, float] = {}
        self.checkpoint: dict[str, Any] | None = None

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """One line of numbers at an optimizer step, on disk before the call returns."""
        lease.check(self.folder)
        line = {"step": step, "time": round(time.monotonic() - self._started, 3), **values}
        self._metrics.write(json.dumps(strict(line)) + "\n")
        self._metrics.flush()
        self.lines += 1
        self._tracker.log(step, values)

    def continue_from(self, lines: int | None) -> None:
        """Go on behind the first `lines` lines of metrics.jsonl: an earlier process was interrupted later than its last
        checkpoint, and what it logged since will be logged again. None: it all belongs to an attempt of its own."""
        file = self.folder / "metrics.jsonl"
        logged = file.read_bytes()
        kept = b"".join(logged.splitlines(keepends=True)[: lines or 0])
        if lines is None and logged:
            earlier = json.loads((self.folder / "run.json").read_text(encoding="utf-8"))["attempt"] - 1
            write_atomically(self.folder / f"metrics.attempt{earlier}.jsonl", logged.decode(errors="replace"))
        os.truncate(file, len(kept))
        self.lines = len(kept.splitlines())
        if kept:  # the clock goes on too
            self._started = time.monotonic() - float(json.loads(kept.splitlines()[-1])["time"])

    def write_examples(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """examples.parquet: every aggregate of the report can be recomputed from it."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        lease.check(self.folder)
        temporary = self.folder / ".examples.parquet.tmp"
        pq.write_table(pa.Table.from_pylist([dict(row) for row in rows]), temporary)
        temporary.replace(self.folder / "examples.parquet")

    def finish(self, metrics: Mapping[str, float], checkpoint: Mapping[str, Any]) -> None:
        """Say what came out; called once, when everything else is on disk."""
        self.summary, self.checkpoint = dict(metrics), dict(checkpoint)
        self._tracker.summarize({**self.summary, **{f"ckpt/{key}": value for key, value in checkpoint.items()}})


@contextmanager
def open_record(config: RunConfig, identity: Identity) -> Iterator[Record]:
    """Open the folder, and close it with the truth (finished, failed, interrupted) in result.json and in the tracker.

    An exception is recorded and raised again. Two processes never write one folder: the second gets a sentence.
    """
    folder = find_folder(config, identity)
    folder.mkdir(parents=True, exist_ok=True)
    with _lock(folder):
        lease.check(folder)
        attempt = _keep_earlier_attempt(folder)
        plain = config.model_dump(mode="json")
        run = _run_json(config, identity, attempt, plain)
        write_json(folder / "run.json", run)
        write_atomically(folder / "config.yaml", yaml.safe_dump(plain, sort_keys=False, allow_unicode=True))
        tracker = open_tracker(config.tracking, run, folder)
        write_json(folder / "run.json", {**run, **tracker.where()})
        with (folder / "metrics.jsonl").open("a", encoding="utf-8") as metrics:
            record = Record(folder, tracker, metrics)
            status, error = "interrupted", None
            try:
                yield record
                status = "finished"
            except lease.LeaseLostError:  # the folder belongs to another copy of this job
                raise
            except Exception as exception:
                status, error = "failed", {"type": type(exception).__name__, "message": str(exception)}
                write_atomically(folder / "error.txt", traceback.format_exc())
                raise
            finally:  # KeyboardInterrupt and SystemExit come here as interrupted
                if not lease.is_lost(folder):
                    write_json(
                        folder / "result.json",
                        {
                            "schema": SCHEMA,
                            "id": identity.id,
                            "status": status,
                            "error": error,
                            "metrics": record.summary,
                            "checkpoint": record.checkpoint,
                            "notes": record.notes,
                            "finished": _now(),
                        },
                    )
                tracker.close(status)


@contextmanager
def _lock(folder: Path) -> Iterator[None]:
    with (folder / ".lock").open("a+") as file:
        for pause in (0.05, 0.2, 0.5):  # who looks whether it is locked holds it for an instant
            if is_mine := lease.take(file):
                break
            time.sleep(pause)
        if not (is_mine or lease.take(file)):
            raise RunIsActiveError(f"{folder} is being written by another process; wait for it, or end it.")
        yield


def _keep_earlier_attempt(folder: Path) -> int:
    """Set an earlier attempt's numbers aside under its own name; returns this attempt's number, from 1."""
    try:
        earlier = int(json.loads((folder / "run.json").read_text(encoding="utf-8"))["attempt"])
    except (FileNotFoundError, json.JSONDecodeError, KeyError):
        return 1
    goes_on = any((folder / "checkpoints" / f"{name}.safetensors").exists() for name in ("last", "new", "previous"))
    for name in ("metrics.jsonl", "result.json", "error.txt", "examples.parquet"):
        file = folder / name
        if file.exists() and not (goes_on and name == "metrics.jsonl"):  # `Record.continue_from` has the last word
            file.replace(folder / f"{file.stem}.attempt{earlier}{file.suffix}")
    return earlier + 1


def _run_json(config: RunConfig, identity: Identity, attempt: int, plain: dict[str, Any]) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "id": identity.id,
        "group": identity.group,
        "name": identity.name,
        "study": config.study,
        "loss": config.loss.name,
        "model": config.model.name,
        "dataset": config.dataset.name,
        "seed": config.seed,
        "attempt": attempt,
        "created": _now(),
        "config": redacted(plain),
        "versions": versions(),
        "git": git(),
        "host": platform.node(),
        "pid": os.getpid(),
        "wandb": None,
    }


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
