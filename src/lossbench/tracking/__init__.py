"""What a run leaves behind: its own record on disk, and a run of wandb or TensorBoard that mirrors it."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lossbench.config import RunConfig
    from lossbench.identity import Identity
    from lossbench.tracking.record import Record

__all__ = ["open_run"]


def open_run(config: RunConfig, identity: Identity | None = None) -> AbstractContextManager[Record]:
    """Open a run: its folder, its record and its tracker, all of which are closed with the truth however it ends.

        with tracking.open_run(config) as run:
            run.log(step, {"train/loss": 0.5})
            run.finish({"test/em": 0.4}, checkpoint={"step": 100, "criterion": "val/nll", "value": 0.2})

    See `lossbench.tracking.record.open_record`.
    """
    from lossbench.identity import identify
    from lossbench.tracking.record import open_record

    return open_record(config, identity or identify(config))
