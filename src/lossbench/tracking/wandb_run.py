"""A wandb run that mirrors the record: lean, private, and never able to stop training.

Facts behind the settings: without a flush interval a killed run leaves an empty log; without `finish` every run of a
process lands in the first one; an exception that a launcher catches would be recorded as success. So the run is opened
and closed here, with its true exit code, and Lightning's logger is not used.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from lossbench.config import TrackingConfig
from lossbench.tracking.files import strict

SECRETS = ("token", "key", "secret", "password")
SETTINGS: dict[str, Any] = {
    "console": "off",
    "silent": True,
    "x_disable_stats": True,
    "x_disable_meta": True,
    "x_disable_machine_info": True,
    "x_save_requirements": False,
    "save_code": False,
    "disable_code": True,
    "disable_git": True,
    "host": "redacted",
    "x_transaction_log_flush_interval": 1,
    "finish_timeout": 60,
    "init_timeout": 30,
}


class WandbRun:
    """One wandb run, or nothing at all; every call is safe."""

    def __init__(self, run: Any = None) -> None:
        self._run = run

    @classmethod
    def open(cls, tracking: TrackingConfig, run_json: Mapping[str, Any], folder: Path) -> WandbRun:
        """Open the run named by `run_json["id"]` under `folder`; in mode `auto` fall back to offline."""
        if tracking.mode == "disabled":
            return cls()
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        modes = ["online", "offline"] if tracking.mode == "auto" else [tracking.mode]
        problem: Exception | None = None
        for mode in modes:
            try:
                return cls(_init(mode, tracking, run_json, folder))
            except Exception as error:  # wandb raises its own, requests', OS errors: none may stop training
                problem = error
        _warn("start", problem)
        return cls()

    def where(self) -> dict[str, Any] | None:
        """Mode, folder and address of the run, for run.json."""
        if self._run is None:
            return None
        offline = bool(self._run.offline)
        return {
            "mode": "offline" if offline else "online",
            "dir": str(Path(self._run.dir).parent),
            "url": None if offline else self._run.url,
        }

    def log(self, values: Mapping[str, Any]) -> None:
        self._guarded("log", lambda: self._run.log(dict(values)))

    def summarize(self, values: Mapping[str, Any]) -> None:
        self._guarded("summary", lambda: self._run.summary.update(strict(values)))

    def close(self, exit_code: int) -> None:
        """Finish with the true exit code; afterwards the log on disk is complete."""

        def finish() -> None:
            import wandb

            offline = self._run.offline
            self._run.finish(exit_code=exit_code)
            if offline:
                wandb.teardown()  # `finish` returns a moment before the log is whole

        self._guarded("finish", finish)
        self._run = None

    def _guarded(self, what: str, action: Callable[[], Any]) -> None:
        if self._run is None:
            return
        try:
            action()
        except Exception as error:  # a dead wandb raises ConnectionResetError, BrokenPipeError and more
            _warn(what, error)
            self._run = None


def _init(mode: str, tracking: TrackingConfig, run_json: Mapping[str, Any], folder: Path) -> Any:
    import wandb

    run = wandb.init(
        mode=mode,  # type: ignore[arg-type]
        project=tracking.project,
        entity=tracking.entity,
        id=run_json["id"],
        name=run_json["name"],
        group=run_json["group"],
        job_type="train",
        tags=[run_json["study"]],
        config=redacted({key: value for key, value in run_json.items() if key not in {"host", "pid", "wandb"}}),
        dir=str(folder),
        resume="allow",
        reinit="finish_previous",
        settings=wandb.Settings(**SETTINGS),
    )
    if not Path(run.dir).resolve().is_relative_to(folder.resolve()):  # wandb falls back to /tmp without a word
        run.finish(exit_code=1)
        raise OSError(f"wandb cannot write below {folder}")
    return run


def redacted(value: Any) -> Any:
    """The same plain data with everything hidden whose key looks like a secret; wandb writes configs in clear."""
    if isinstance(value, Mapping):
        return {
            str(key): "***" if inner and isinstance(inner, str) and _is_secret(str(key)) else redacted(inner)
            for key, inner in value.items()
        }
    if isinstance(value, list | tuple):
        return [redacted(inner) for inner in value]
    return strict(value)


def _is_secret(key: str) -> bool:
    return any(part in SECRETS for part in key.lower().replace("-", "_").split("_"))


def _warn(what: str, error: Exception | None) -> None:
    warnings.warn(
        f"wandb failed to {what} ({type(error).__name__}: {error}); the run goes on, its own record is complete.",
        stacklevel=3,
    )
