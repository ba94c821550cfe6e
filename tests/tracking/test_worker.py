import threading
import warnings

import pytest

from lossbench.tracking import worker as module
from lossbench.tracking.worker import Worker


def test_what_is_told_is_done_in_order():
    done: list[int] = []
    worker = Worker("it")
    for number in range(100):
        worker.tell("count", lambda n=number: done.append(n))
    assert worker.close(10)
    assert done == list(range(100))


def test_the_first_failure_ends_it_with_one_warning():
    done: list[str] = []

    def fail() -> None:
        raise ConnectionResetError("gone")

    worker = Worker("wandb")
    worker.tell("log", fail)
    worker.tell("log", lambda: done.append("after"))
    with pytest.warns(UserWarning, match=r"wandb failed to log \(ConnectionResetError: gone\); the run goes on"):
        assert worker.close(10)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        worker.tell("log", lambda: done.append("later"))
        worker.close(10)
    assert done == []


def test_a_hanging_action_holds_nobody_up(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "WAITING", 3)
    release = threading.Event()
    worker = Worker("wandb")
    worker.tell("log", release.wait)
    with pytest.warns(UserWarning, match="slower than training"):
        for _ in range(10):
            worker.tell("log", lambda: None)
    assert worker.left_out >= 6
    assert not worker.close(0.01)
    release.set()


def test_an_answer_is_waited_for_so_long_and_no_longer():
    release = threading.Event()
    worker = Worker("wandb")
    assert worker.ask(lambda: 3, 10) == 3
    with pytest.raises(ZeroDivisionError):
        worker.ask(lambda: 1 / 0, 10)
    assert worker.is_alive
    with pytest.raises(TimeoutError):
        worker.ask(release.wait, 0.01)
    release.set()
