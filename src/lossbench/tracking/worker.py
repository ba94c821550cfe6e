"""A thread that does what must not hold up training: calls of a client whose server, disk or process may hang."""

from __future__ import annotations

import queue
import threading
import warnings
from collections.abc import Callable
from typing import Any

WAITING = 10_000  # log calls that may wait; beyond it new ones are left out and counted


class Worker:
    """Does actions one after the other. Of several that fail only the first counts: after it nothing more is done.

    The caller is never held up by `tell`, and by `ask` and `close` for so many seconds at most. What went wrong is
    warned of once, from the caller's thread.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._actions: queue.Queue[tuple[str, Callable[[], Any]] | None] = queue.Queue(WAITING)
        self._thread = threading.Thread(target=self._work, name=f"lossbench-{name}", daemon=True)
        self._failure: tuple[str, str] | None = None
        self._has_warned = False
        self._closed = False
        self.left_out = 0
        self._thread.start()

    @property
    def has_failed(self) -> bool:
        return self._failure is not None

    @property
    def is_alive(self) -> bool:
        """False once something failed or it was closed: then nothing is done any more."""
        return not self.has_failed and not self._closed

    def tell(self, what: str, action: Callable[[], Any]) -> None:
        """Have `action` done later; `what` names it in the warning if it fails."""
        if not self.is_alive:
            self._warn()
            return
        try:
            self._actions.put_nowait((what, action))
        except queue.Full:
            self.left_out += 1
            if self.left_out == 1:
                warnings.warn(
                    f"{self.name} is slower than training: some of its values are left out. The run's own record has "
                    "them all.",
                    stacklevel=3,
                )

    def ask(self, action: Callable[[], Any], seconds: float) -> Any:
        """The result of `action`, as soon as it is there.

        Raises:
            TimeoutError: it took longer, and goes on in the thread.
            Exception: what the action raised.
        """
        done = threading.Event()
        outcome: list[Any] = []
        error: list[BaseException] = []

        def run() -> None:
            try:
                outcome.append(action())
            except Exception as caught:
                error.append(caught)
            finally:
                done.set()

        self._actions.put_nowait(("", run))
        if not done.wait(seconds):
            raise TimeoutError(f"no answer within {seconds:g} s")
        if error:
            raise error[0]
        return outcome[0]

    def fail(self, what: str, why: str) -> None:
        """Give up, and say so once."""
        self._failure = self._failure or (what, why)
        self._warn()

    def close(self, seconds: float) -> bool:
        """Finish what was told; False if that took longer than `seconds`, and the thread was left alone with it."""
        if not self._closed:
            self._closed = True
            try:
                self._actions.put(None, timeout=seconds)
            except queue.Full:
                return False
            self._thread.join(seconds)
        self._warn()
        return not self._thread.is_alive()

    def _work(self) -> None:
        while (told := self._actions.get()) is not None:
            what, action = told
            if self._failure is not None:
                continue
            try:
                action()
            except Exception as error:  # whatever a client raises, training goes on
                self._failure = (what, f"{type(error).__name__}: {error}")

    def _warn(self) -> None:
        if self._failure is not None and not self._has_warned:
            self._has_warned = True
            what, why = self._failure
            warnings.warn(f"{self.name} failed to {what} ({why}); the run goes on with its own record.", stacklevel=4)
