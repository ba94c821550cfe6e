"""The server for a module of tests, and wandb's client turned to it. A conftest.py imports both."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.wandb_server.server import WandbServer

CLIENT = ("WANDB_DIR", "WANDB_PROJECT", "WANDB_RUN_ID", "WANDB_RESUME", "WANDB_CACHE_DIR")


@pytest.fixture(scope="module")
def running_server() -> Iterator[WandbServer]:
    pytest.importorskip("wandb", reason="wandb is not installed")
    with WandbServer() as server:
        yield server


@pytest.fixture
def server(running_server: WandbServer, monkeypatch: pytest.MonkeyPatch) -> WandbServer:
    """A server that remembers nothing; the environment of the test names it, and nothing else of wandb."""
    running_server.reset()
    os.environ.pop("WANDB_SERVICE", None)  # names a process of an earlier test, which may be gone: not put back
    for name in CLIENT:
        monkeypatch.delenv(name, raising=False)
    for name, value in running_server.environment().items():
        monkeypatch.setenv(name, value)
    return running_server
