"""What a run tells an experiment tracker, whichever it is: a few calls that never raise and never wait for long."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from lossbench.config import TrackingConfig
from lossbench.errors import ConfigError


class Tracker(Protocol):
    """An open run of an experiment tracker."""

    def where(self) -> dict[str, Any]:
        """What run.json says of it, by the tracker's name: `{"wandb": {"mode": ..., "dir": ..., "url": ...}}`."""

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Numbers at an optimizer step."""

    def summarize(self, values: Mapping[str, Any]) -> None:
        """The results of the run, scalars by name."""

    def close(self, status: str) -> None:
        """End it with the truth: `finished`, `failed` or `interrupted`."""


class NoTracker:
    """The run's own record is all there is."""

    def where(self) -> dict[str, Any]:
        return {}

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Nothing to do."""

    def summarize(self, values: Mapping[str, Any]) -> None:
        """Nothing to do."""

    def close(self, status: str) -> None:
        """Nothing to do."""


def check(tracking: TrackingConfig) -> None:
    """Refuse a tracker whose package is not there.

    Raises:
        ConfigError: one sentence with what to install, or what to choose instead.
    """
    if tracking.mode == "disabled":
        return
    package = {"wandb": "wandb", "tensorboard": "tensorboard"}.get(tracking.name)
    if package and find_spec(package) is None:
        raise ConfigError(
            f"tracking={tracking.name} needs the package {package}, which is not installed: "
            f"pip install {package}, or choose tracking=none."
        )


def open_tracker(tracking: TrackingConfig, run: Mapping[str, Any], folder: Path) -> Tracker:
    """The tracker that was asked for, open for the run that run.json (`run`) describes, with its files in `folder`.

    A tracker that cannot start is one warning and a `NoTracker`.
    """
    if tracking.mode == "disabled":
        return NoTracker()
    match tracking.name:
        case "wandb":
            from lossbench.tracking.wandb_run import WandbRun

            return WandbRun.open(tracking, run, folder)
        case "tensorboard":
            from lossbench.tracking.tensorboard import TensorBoardRun

            return TensorBoardRun.open(run, folder)
    return NoTracker()
