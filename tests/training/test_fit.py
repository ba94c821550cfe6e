"""What training tells of itself when it has ended."""

from pathlib import Path

import pytest

from lossbench.training.checkpoint import BestCheckpoint
from lossbench.training.fit import Fitted
from lossbench.training.watch import Done


def test_gpu_hours_are_those_of_all_devices_and_only_of_gpus(tmp_path: Path) -> None:
    done, best = Done(train_seconds=1800.0, tokens=3600), BestCheckpoint(tmp_path)
    assert Fitted(done, best, True, gpus=4).metrics()["perf/gpu_hours"] == pytest.approx(2.0)
    on_a_cpu = Fitted(done, best, True).metrics()
    assert "perf/gpu_hours" not in on_a_cpu
    assert on_a_cpu["perf/tokens_per_s"] == pytest.approx(2.0)
