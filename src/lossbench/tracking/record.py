"""The record of a run: a folder whose files say who it is, how it went, and what came out.

run.json         identity, before the first step
config.yaml      the frozen configuration
metrics.jsonl    one line a log call, append-only
examples.parquet one row an evaluated example
result.json      written last, by rename: its presence means that the run has ended, its status how
error.txt        the traceback of a failed run
"""

from __future__ import annotations

import fcntl
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
from lossbench.tracking.files import strict, write_atomically, write_json
from lossbench.tracking.provenance import git, versions
from lossbench.tracking.wandb_run import WandbRun

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
    """An open run folder. `log` appends to metrics.jsonl and wandb; the result is written when the record closes."""

    def __init__(self, folder: Path, wandb_run: WandbRun, metrics: IO[str]) -> None:
        self.folder = folder
        self._wandb = wandb_run
        self._metrics = metrics
        self._started = time.monotonic()
        self.summary: dict[str, float] = {}
        self.checkpoint: dict[str, Any] | None = None

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """One line of numbers at an optimizer step, on disk before the call returns."""
        line = {"step": step, "time": round(time.monotonic() - self._started, 3), **values}
        self._metrics.write(json.dumps(strict(line)) + "\n")
        self._metrics.flush()
        self._wandb.log({**values, "trainer/global_step": step})

    def write_examples(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """examples.parquet: every aggregate of the report can be recomputed from it."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        temporary = self.folder / ".examples.parquet.tmp"
        pq.write_table(pa.Table.from_pylist([dict(row) for row in rows]), temporary)
        temporary.replace(self.folder / "examples.parquet")

    def finish(self, metrics: Mapping[str, float], checkpoint: Mapping[str, Any]) -> None:
        """Say what came out; called once, when everything else is on disk."""
        self.summary, self.checkpoint = dict(metrics), dict(checkpoint)
        self._wandb.summarize({**self.summary, **{f"ckpt/{key}": value for key, value in checkpoint.items()}})


@contextmanager
def open_record(config: RunConfig, identity: Identity) -> Iterator[Record]:
    """Open the folder, and close it with the truth: finished, failed or interrupted, in result.json and in wandb.

    An exception is recorded and raised again. Two processes never write one folder: the second gets a sentence.
    """
    folder = find_folder(config, identity)
    folder.mkdir(parents=True, exist_ok=True)
    with _lock(folder):
        attempt = _keep_earlier_attempt(folder)
        plain = config.model_dump(mode="json")
        run = _run_json(config, identity, attempt, plain)
        write_json(folder / "run.json", run)
        write_atomically(folder / "config.yaml", yaml.safe_dump(plain, sort_keys=False, allow_unicode=True))
        wandb_run = WandbRun.open(config.tracking, run, folder)
        write_json(folder / "run.json", {**run, "wandb": wandb_run.where()})
        with (folder / "metrics.jsonl").open("a", encoding="utf-8") as metrics:
            record = Record(folder, wandb_run, metrics)
            status, error = "interrupted", None
            try:
                yield record
                status = "finished"
            except Exception as exception:
                status, error = "failed", {"type": type(exception).__name__, "message": str(exception)}
                write_atomically(folder / "error.txt", traceback.format_exc())
                raise
            finally:  # KeyboardInterrupt and SystemExit come here as interrupted
                write_json(
                    folder / "result.json",
                    {
                        "schema": SCHEMA,
                        "id": identity.id,
                        "status": status,
                        "error": error,
                        "metrics": record.summary,
                        "checkpoint": record.checkpoint,
                        "finished": _now(),
                    },
                )
                wandb_run.close(exit_code={"finished": 0, "failed": 1}.get(status, 143))


@contextmanager
def _lock(folder: Path) -> Iterator[None]:
    with (folder / ".lock").open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # freed by the system however the process ends
        except OSError:
            raise RunIsActiveError(f"{folder} is being written by another process; wait for it, or end it.") from None
        yield


def _keep_earlier_attempt(folder: Path) -> int:
    """Set an earlier attempt's numbers aside under its own name; returns this attempt's number, from 1."""
    try:
        earlier = int(json.loads((folder / "run.json").read_text(encoding="utf-8"))["attempt"])
    except (FileNotFoundError, json.JSONDecodeError, KeyError):
        return 1
    for name in ("metrics.jsonl", "result.json", "error.txt", "examples.parquet"):
        file = folder / name
        if file.exists():
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
        "config": plain,
        "versions": versions(),
        "git": git(),
        "host": platform.node(),
        "pid": os.getpid(),
        "wandb": None,
    }


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
