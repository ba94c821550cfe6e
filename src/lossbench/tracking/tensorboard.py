"""Event files of TensorBoard in the run folder. An alternative to wandb for who has a TensorBoard running anyway."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lossbench.tracking.redact import redacted
from lossbench.tracking.worker import Worker

FINISH_SECONDS = 60.0
FOLDER = "tensorboard"


class TensorBoardRun:
    """One event file an attempt; a later attempt hides the steps of earlier ones that it does again."""

    def __init__(self, folder: Path, run: Mapping[str, Any]) -> None:
        self._folder = folder
        self._run = run
        self._writer: Any = None
        self._last_step = 0
        self._worker = Worker("TensorBoard")

    @classmethod
    def open(cls, run: Mapping[str, Any], folder: Path) -> TensorBoardRun:
        """Nothing is written before the first number."""
        return cls(folder / FOLDER, run)

    def where(self) -> dict[str, Any]:
        return {"tensorboard": {"dir": str(self._folder)}}

    def log(self, step: int, values: Mapping[str, float]) -> None:
        self._last_step = max(self._last_step, step)
        self._worker.tell("log", lambda: self._write(step, values))

    def summarize(self, values: Mapping[str, Any]) -> None:
        numbers = {key: float(v) for key, v in values.items() if isinstance(v, int | float) and not isinstance(v, bool)}
        self._worker.tell("log the results", lambda: self._write(self._last_step, numbers))

    def close(self, status: str) -> None:
        def finish() -> None:
            if self._writer is not None:
                self._writer.add_text("status", status, self._last_step)
                self._writer.close()

        self._worker.tell("finish", finish)
        if not self._worker.close(FINISH_SECONDS):
            self._worker.fail("finish", f"it hangs for {FINISH_SECONDS:g} s")

    def _write(self, step: int, values: Mapping[str, float]) -> None:
        if self._writer is None:
            import yaml
            from torch.utils.tensorboard import SummaryWriter

            self._writer = SummaryWriter(str(self._folder), purge_step=step)
            text = yaml.safe_dump(redacted(self._run["config"]), sort_keys=False, allow_unicode=True)
            self._writer.add_text("config", "    " + text.replace("\n", "\n    "), step)
        for name, value in values.items():
            if not math.isnan(value):  # TensorBoard draws a NaN as a gap of its own kind; a missing point says the same
                self._writer.add_scalar(name, value, step)
