"""How far the work is: a bar on a terminal, a line now and then in a log."""

from __future__ import annotations

import sys
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

LINES = 10  # in a log, per phase


class ProgressDisplay:
    """Phases of a run on stderr: `phase("training", 200)`, then `update(done, "loss 0.41")`."""

    def __init__(self, title: str, *, enabled: bool = True) -> None:
        self.title = title
        self._terminal = enabled and sys.stderr.isatty()
        self._lines = enabled and not self._terminal
        self._bars = Progress(
            TextColumn("{task.description:>12}"),
            BarColumn(bar_width=28),
            MofNCompleteColumn(),
            TimeRemainingColumn(compact=True, elapsed_when_finished=True),
            TextColumn("{task.fields[note]}"),
            console=Console(stderr=True),
            disable=not self._terminal,
        )
        self._name, self._total, self._printed = "", 0, 0
        self._task: TaskID | None = None

    def __enter__(self) -> ProgressDisplay:
        self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bars.stop()

    def phase(self, name: str, total: int) -> None:
        """Begin a phase of `total` units of work."""
        self._name, self._total, self._printed = name, total, 0
        self._task = self._bars.add_task(name, total=total, note="") if self._terminal else None

    def update(self, done: int, note: str = "") -> None:
        """`done` units of the present phase are done."""
        if self._task is not None:
            self._bars.update(self._task, completed=done, note=note)
        elif self._lines and done * LINES >= (self._printed + 1) * self._total:
            self._printed = done * LINES // self._total
            print(f"{self.title}: {self._name} {done}/{self._total} {note}", file=sys.stderr, flush=True)

    def on_progress(self, phase: str, done: int, total: int, tokens_per_second: float) -> None:
        """Callback of an evaluation; a new phase begins when its name changes."""
        if phase != self._name:
            self.phase(phase, total)
        self.update(done, f"{tokens_per_second:,.0f} tokens/s")
