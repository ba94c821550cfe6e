from pathlib import Path
from typing import Any

import pytest

from lossbench import app, tracking

pytest.importorskip("tensorboard", reason="the optional package tensorboard is not installed")


def scalars(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """What TensorBoard itself reads."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    read: Any = EventAccumulator(str(folder))
    read.Reload()
    return {tag: [(event.step, event.value) for event in read.Scalars(tag)] for tag in read.Tags()["scalars"]}


def test_tensorboard_reads_every_number_and_a_later_attempt_replaces_steps(tmp_path: Path):
    config = app.compose(f"paths.runs={tmp_path}", "tracking=tensorboard")
    with pytest.raises(RuntimeError), tracking.open_run(config) as run:
        for step in (1, 2, 3):
            run.log(step, {"train/loss": 4.0 / step, "val/nll": float("nan")})
        raise RuntimeError
    with tracking.open_run(config) as run:
        run.log(2, {"train/loss": 8.0})
        run.finish({"test/em": 0.5}, {"step": 2, "criterion": "val/nll", "value": 1.0})
    found = scalars(run.folder / "tensorboard")
    assert found == {
        "train/loss": [(1, 4.0), (2, 8.0)], "test/em": [(2, 0.5)], "ckpt/step": [(2, 2.0)], "ckpt/value": [(2, 1.0)],
    }  # fmt: skip
