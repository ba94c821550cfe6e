"""One owner of the signals that ask a run to stop."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR2)
WITH_WORKERS = (*SIGNALS, signal.SIGUSR1)


class Interrupted(SystemExit):
    """A signal stopped the run. Its exit code is 128 + the signal's number: 143 for SIGTERM, 130 for SIGINT.

    It is nobody's mistake, so no `Exception`: `except Exception` lets it pass.
    """

    def __init__(self, signum: int, resumable: bool = False) -> None:
        super().__init__(128 + signum)
        self.signum = signum
        self.resumable = resumable  # whether a checkpoint of this moment was written

    @property
    def signal(self) -> str:
        return signal.Signals(self.signum).name


class Interrupts:
    """Notes that a signal came; while it is `raising` the signal also ends what is being done, by `Interrupted`.

    A handler can run between any two bytecodes, where neither weights nor files are whole. So by default it only sets
    `received`, which training reads after every optimizer step, and the record's own writing is never cut off. A second
    SIGINT is an impatient person's: it raises at once.

        with Interrupts() as interrupts:            # SIGTERM, SIGINT and SIGUSR2 are ours
            with interrupts.raising():              # may be cut off anywhere
                ...
                with interrupts.deferred():         # reads interrupts.received itself
    """

    def __init__(self) -> None:
        self.received: int | None = None  # the first signal's number
        self._raising = False
        self._owner = os.getpid()
        self._earlier: dict[int, Any] = {}

    def __enter__(self) -> Interrupts:
        self.install()
        return self

    def __exit__(self, *_: object) -> None:
        for signum, handler in self._earlier.items():
            signal.signal(signum, handler)
        self._earlier.clear()

    def install(self) -> None:
        """Put our handlers in place, again where a library has put its own. Does nothing outside the main thread."""
        if threading.current_thread() is not threading.main_thread():
            return
        for signum in SIGNALS:
            handler = signal.getsignal(signum)
            if handler != self._on_signal:
                self._earlier.setdefault(signum, handler)
                signal.signal(signum, self._on_signal)

    @contextmanager
    def raising(self) -> Iterator[None]:
        """Within, a signal raises `Interrupted` where it arrives; one that came before does so now."""
        with self._set(True):
            self.check()
            yield

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """Within, a signal is noted alone."""
        with self._set(False):
            yield

    def check(self) -> None:
        """Raise `Interrupted` if a signal came."""
        if self.received is not None:
            raise Interrupted(self.received)

    @contextmanager
    def _set(self, raising: bool) -> Iterator[None]:
        before, self._raising = self._raising, raising
        try:
            yield
        finally:
            self._raising = before

    def _on_signal(self, signum: int, frame: FrameType | None) -> None:
        if os.getpid() != self._owner:  # a process forked from this one
            return
        again = self.received is not None and signum == signal.SIGINT
        self.received = self.received or signum
        if self._raising or again:
            raise Interrupted(signum)


def ignore_signals(worker: int) -> None:
    """`worker_init_fn` of a loader: its processes live as long as their parent, which decides what a signal means.

    A terminal and some launchers signal the whole group; a worker that dies of it would take the step with it.
    """
    for signum in WITH_WORKERS:
        signal.signal(signum, signal.SIG_IGN)
