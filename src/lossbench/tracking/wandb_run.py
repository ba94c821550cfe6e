"""A wandb run that mirrors the record: lean, private, and never able to stop training.

Facts behind the settings: without a flush interval a killed run leaves an empty log; without `finish` every run of a
process lands in the first one; an exception that a launcher catches would be recorded as success; a wandb whose own
process hangs holds up every call. So the run is opened and closed here, with its true exit code, all calls are made in
a thread of their own, and Lightning's logger is not used.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lossbench.config import TrackingConfig
from lossbench.tracking.files import strict
from lossbench.tracking.redact import redacted
from lossbench.tracking.worker import Worker

INIT_SECONDS, FINISH_SECONDS = 30, 60
GRACE = 15.0  # more seconds until a wandb that does not keep its own limits is left alone
EXIT_CODES = {"finished": 0, "failed": 1}
INTERRUPTED = 143  # as of a process that SIGTERM ended
STATUS = "lossbench/status"  # in the summary; the service has no word of its own for an interrupted run
LOCAL = frozenset({"host", "pid", "wandb"})  # of run.json: not for others' eyes
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
    "finish_timeout": FINISH_SECONDS,
    "init_timeout": INIT_SECONDS,
}


class WandbRun:
    """One wandb run, or what is left of it; every call is safe."""

    def __init__(self, run: Any = None, worker: Worker | None = None) -> None:
        self._run = run
        self._worker = worker or Worker("wandb")

    @classmethod
    def open(cls, tracking: TrackingConfig, run_json: Mapping[str, Any], folder: Path) -> WandbRun:
        """Open the run named by `run_json["id"]` under `folder`; mode `auto` falls back to an offline run.

        The same id goes on where an earlier attempt ended: at once if online, when the attempts are synced if offline.
        """
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        os.environ.setdefault("WANDB_SILENT", "true")  # else it may ask for a key, and a terminal waits for an answer
        os.environ.setdefault("WANDB_CACHE_DIR", str(folder / "wandb" / "cache"))  # else it fills the home folder
        modes = ["online", "offline"] if tracking.mode == "auto" else [tracking.mode]
        worker = Worker("wandb")
        for mode in modes:
            try:
                run = worker.ask(lambda: _init(mode, tracking, run_json, folder), INIT_SECONDS + GRACE)  # noqa: B023
                return cls(run, worker)
            except Exception as error:  # wandb raises its own, requests', OS errors: none may stop training
                why = f"{type(error).__name__}: {error}"
                end_service()  # it holds on to the id, and refuses it to the next try
            if mode != modes[-1]:
                warnings.warn(f"wandb does not answer online ({why}); it logs offline instead.", stacklevel=2)
                worker = Worker("wandb")  # the other one may still hang
        worker.fail("start", why)
        return cls(None, worker)

    def where(self) -> dict[str, Any]:
        if self._run is None:
            return {"wandb": None}
        offline = bool(self._run.offline)
        place = {"mode": "offline" if offline else "online", "dir": str(Path(self._run.dir).parent)}
        return {"wandb": {**place, "url": None if offline else self._run.url}}

    def log(self, step: int, values: Mapping[str, Any]) -> None:
        if self._run is not None:
            row = {**values, "trainer/global_step": step}
            self._worker.tell("log", lambda: self._run.log(row))

    def summarize(self, values: Mapping[str, Any]) -> None:
        if self._run is not None:
            self._worker.tell("log the results", lambda: self._run.summary.update(strict(values)))

    def close(self, status: str) -> None:
        """Finish with the true exit code; afterwards the log on disk is complete.

        A wandb that still hangs after its own time limit is ended, so that the process can end as well.
        """
        if self._run is None:  # it never began, and what tried may still hang
            return
        self._worker.tell("finish", lambda: _finish(self._run, status))
        if not self._worker.close(FINISH_SECONDS + GRACE):
            self._worker.fail("finish", f"it hangs for {FINISH_SECONDS + GRACE:g} s")
        if self._worker.has_failed:
            end_service()


def end_service() -> None:
    """Forget the wandb-core process that this process started, and end it.

    Hanging or gone, it would hold up the end of Python, and every later `wandb.init` here would fail. This reaches into
    wandb 0.31, which offers no way of its own; in another version it may do nothing.
    """
    try:
        from wandb.sdk import wandb_setup
        from wandb.sdk.lib.service import service_token

        connection = wandb_setup.singleton()._connection
        if connection is None or connection._proc is None:  # none, or one that somebody else started
            return
        connection._proc._process.kill()
        if connection._cleanup:
            connection._cleanup()  # takes its hook off the end of Python
        service_token.clear_service_in_env()
        wandb_setup._singleton = None
    except Exception:
        return


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
        config=redacted({key: value for key, value in run_json.items() if key not in LOCAL}),
        dir=str(folder),
        resume="allow",
        reinit="finish_previous",
        settings=wandb.Settings(**{key: v for key, v in SETTINGS.items() if key in wandb.Settings.model_fields}),
        allow_val_change=True,
    )
    if not Path(run.dir).resolve().is_relative_to(folder.resolve()):  # wandb falls back to /tmp without a word
        run.finish(exit_code=1)
        raise OSError(f"it cannot write below {folder}")
    return run


def _finish(run: Any, status: str) -> None:
    import wandb

    offline = run.offline
    run.summary.update({STATUS: status})
    exit_code = EXIT_CODES.get(status, INTERRUPTED)
    if exit_code == INTERRUPTED:
        run.mark_preempting()
    run.finish(exit_code=exit_code)
    if offline:
        wandb.teardown()  # `finish` returns a moment before the log is whole
