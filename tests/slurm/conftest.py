"""A cluster for the tests of this folder; they run with `make slurm-test`."""

import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.slurm.cluster import Cluster, missing
from tests.slurm.sweeps import Sweeps, numbers, uninterrupted

# First where SLURM's own clocks run longest: the others fill the time.
FIRST = ("test_ends.py", "test_node_lost.py", "test_controller.py", "test_array.py", "test_time_limit.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    reason = missing()
    items.sort(key=lambda item: FIRST.index(item.path.name) if item.path.name in FIRST else len(FIRST))
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.slurm)
            if reason:
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two nodes, with accounting; preempted jobs are warned."""
    with Cluster(tmp_path_factory.mktemp("slurm"), accounting=True) as running:
        yield running


@pytest.fixture
def another_cluster(tmp_path: Path) -> Iterator[Callable[..., Cluster]]:
    """A cluster of a test's own, for what other tests must not feel: `another_cluster(max_array=3)`."""
    running: list[Cluster] = []

    def make(**options: Any) -> Cluster:
        running.append(Cluster(tmp_path / f"slurm{len(running)}", **options))
        running[-1].start()
        return running[-1]

    yield make
    for made in running:
        made.stop()


@pytest.fixture
def sweeps(tmp_path: Path) -> Iterator[Callable[..., Sweeps]]:
    """`sweeps(cluster, pause=0.2)`: commands on a cluster; what they left running is ended after the test."""
    made: list[Sweeps] = []

    def make(on: Cluster, pause: float = 0.0) -> Sweeps:
        folder = tmp_path / f"runs{len(made)}"
        folder.mkdir()
        made.append(Sweeps(on, folder, pause))
        return made[-1]

    yield make
    for one in made:
        one.end()
        for study in one.folder.glob("*/"):
            for array in one.arrays(study.name):
                try:
                    one.cluster.run("scancel", "--full", "--signal=KILL", array)
                    one.cluster.run("scancel", array)
                except RuntimeError:
                    continue


@pytest.fixture(scope="session")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What the run of these tests comes to when nothing happens to it; run once for all of xdist's workers."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    with (shared / "uninterrupted.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return numbers(uninterrupted(shared / "uninterrupted"))
