import multiprocessing
import os
import signal

import pytest

from lossbench.training.interrupt import Interrupted, Interrupts, ignore_signals


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGUSR2, 140)])
def test_a_signal_is_noted_and_ends_only_what_may_be_cut_off(signum: int, code: int):
    with Interrupts() as interrupts:
        os.kill(os.getpid(), signum)
        assert interrupts.received == signum
        with pytest.raises(Interrupted) as stop, interrupts.raising():
            raise AssertionError("a signal that came before must be noticed first")
    assert (stop.value.code, stop.value.signal) == (code, signal.Signals(signum).name)


def test_a_signal_raises_at_once_where_it_may():
    with Interrupts() as interrupts, pytest.raises(Interrupted), interrupts.raising():
        with interrupts.deferred():
            os.kill(os.getpid(), signal.SIGUSR2)  # noted alone
        interrupts.received = None
        os.kill(os.getpid(), signal.SIGTERM)
        raise AssertionError("not reached")


def test_a_second_interrupt_from_the_keyboard_does_not_wait():
    with Interrupts() as interrupts:
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(Interrupted):
            os.kill(os.getpid(), signal.SIGINT)
        assert interrupts.received == signal.SIGINT


def test_the_handlers_before_come_back():
    before = [signal.getsignal(signum) for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR2)]
    with Interrupts() as interrupts:
        signal.signal(signal.SIGTERM, lambda *_: None)  # as a library does
        interrupts.install()
        os.kill(os.getpid(), signal.SIGTERM)
        assert interrupts.received == signal.SIGTERM
    assert [signal.getsignal(signum) for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR2)] == before


def test_except_exception_does_not_swallow_it():
    with Interrupts() as interrupts, pytest.raises(Interrupted), interrupts.raising():
        try:
            os.kill(os.getpid(), signal.SIGTERM)
        except Exception:  # as around an optional import
            raise AssertionError("swallowed") from None


def test_a_forked_process_leaves_the_decision_to_its_parent():
    with Interrupts():
        process = multiprocessing.get_context("fork").Process(target=_signal_oneself)
        process.start()
        process.join(30)
    assert process.exitcode == 0


def _signal_oneself() -> None:
    os.kill(os.getpid(), signal.SIGTERM)
    ignore_signals(0)
    for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2):
        os.kill(os.getpid(), signum)
