import os
import sys
import threading
from pathlib import Path

import pytest

from lossbench import app
from lossbench.errors import ConfigError
from lossbench.training import ranks as module
from lossbench.training.ranks import VARIABLES, RankFailedError, Ranks, others


@pytest.fixture(autouse=True)
def _no_torchrun(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


def test_without_torchrun_this_is_rank_0_of_the_devices():
    assert Ranks.of(app.compose()) == Ranks(0, 1, 1)
    assert Ranks.of(app.compose("trainer.devices=2", "trainer.accumulate=2")) == Ranks(0, 2, 2)


def test_torchrun_says_who_is_who_and_must_agree(monkeypatch: pytest.MonkeyPatch):
    for name, value in {"RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    assert Ranks.of(app.compose("trainer.devices=2", "trainer.accumulate=4")) == Ranks(3, 4, 2)
    with pytest.raises(ConfigError, match=r"trainer\.devices=1, but the environment has 2 processes on this machine"):
        Ranks.of(app.compose())


def test_alone_every_agreement_is_with_oneself():
    alone = Ranks()
    assert alone.sums({"a": 1.5}, "cpu") == {"a": 1.5}
    assert (alone.largest(3, "cpu"), alone.from_first("x"), alone.gathered(1)) == (3, "x", [1])


def _instead_of_a_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, code: str) -> None:
    """The other ranks run `code` instead of lossbench.run."""
    (tmp_path / "python").write_text(f"#!/bin/sh\nexec {sys.executable} -c '{code}'\n")
    (tmp_path / "python").chmod(0o755)
    monkeypatch.setattr(module.sys, "executable", str(tmp_path / "python"))


def test_the_others_get_torchruns_variables_and_the_frozen_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    code = f'import os; open("{tmp_path}/" + os.environ["RANK"], "w").write(os.environ["WORLD_SIZE"])'
    _instead_of_a_run(monkeypatch, tmp_path, code)
    with others(Ranks(0, 3, 3), tmp_path / "config.yaml"):
        assert (os.environ["RANK"], os.environ["WORLD_SIZE"]) == ("0", "3")
    assert "RANK" not in os.environ
    assert [(tmp_path / rank).read_text() for rank in "12"] == ["3", "3"]


def test_another_rank_that_fails_fails_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    _instead_of_a_run(monkeypatch, tmp_path, "import sys; sys.exit(3)")
    with pytest.raises(RankFailedError, match=r"exit codes \[3\]"), others(Ranks(0, 2, 2), tmp_path / "config.yaml"):
        pass


def test_the_others_do_not_outlive_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    _instead_of_a_run(monkeypatch, tmp_path, "import time; time.sleep(600)")
    monkeypatch.setattr(module, "GRACE", 0.2)
    with pytest.raises(ZeroDivisionError), others(Ranks(0, 2, 2), tmp_path / "config.yaml"):
        1 / 0  # noqa: B018


def test_a_rank_that_has_failed_ends_one_that_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    _instead_of_a_run(monkeypatch, tmp_path, "import sys; sys.exit(3)")
    ended = threading.Event()
    monkeypatch.setattr(module, "GRACE", 0.1)
    monkeypatch.setattr(module.os, "_exit", lambda code: ended.set())
    with pytest.raises(RankFailedError), others(Ranks(0, 2, 2), tmp_path / "config.yaml"):
        assert ended.wait(30)  # stands for a connection that never comes
    assert "another process of this run ended with exit code 3" in capsys.readouterr().err
