"""Follow the jobs of a study: what SLURM says of each, remembered for the time when SLURM does not answer."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from lossbench.sweep.slurm import client
from lossbench.sweep.slurm.client import FINAL, MAY_COME_BACK, JobState, SlurmError
from lossbench.tracking.files import write_json

HIDDEN = ".slurm"  # folder of batch scripts, manifests, SLURM's logs and the remembered states
SETTLE = 20.0  # seconds for which a state that may come back must stay, to be believed
FORGOTTEN = 3  # looks in a row without a trace, until a job is believed to be gone


@dataclass
class Sighting:
    """A job's state, since when it is that, and whether it is the last one."""

    state: JobState
    since: float
    is_final: bool = False


@dataclass
class Watcher:
    """The states of a study's jobs. `look` asks SLURM about those that have not ended for good.

    Attributes:
        asked: when SLURM last answered, in seconds since 1970; None if never.
        error: why it did not answer the last time; None when it did.
    """

    study: Path
    jobs: dict[str, Sighting] = field(default_factory=dict)
    asked: float | None = None
    error: SlurmError | None = None
    _unseen: dict[str, int] = field(default_factory=dict)
    _has_accounting: bool | None = None

    @classmethod
    def of(cls, study: Path) -> Watcher:
        """With what was remembered."""
        watcher = cls(study)
        with suppress(FileNotFoundError, json.JSONDecodeError, KeyError, TypeError):
            content = json.loads(watcher._file.read_text(encoding="utf-8"))
            watcher.asked = content["time"]
            for job, entry in content["jobs"].items():
                watcher.jobs[job] = Sighting(JobState(**entry["state"]), entry["since"], entry["is_final"])
        return watcher

    @property
    def trouble(self) -> str:
        """Why SLURM did not answer the last time; empty when it did."""
        return str(self.error) if self.error else ""

    def insist(self, otherwise: str) -> None:
        """Raise unless SLURM has answered; `otherwise` says what was not done without its answer."""
        if self.error:
            raise type(self.error)(f"{self.error} {otherwise}")

    @property
    def _file(self) -> Path:
        return self.study / HIDDEN / "states.json"

    def look(self, tasks: Iterable[str], now: float | None = None) -> None:
        """Ask SLURM about the tasks that have not ended; what it says is remembered on disk."""
        now = time.time() if now is None else now
        open_tasks = [task for task in tasks if not (task in self.jobs and self.jobs[task].is_final)]
        if not open_tasks:
            return
        try:
            found = client.queued(open_tasks)
            ended = [task for task in open_tasks if task not in found or found[task].state in FINAL]
            accounted = self._accounted(ended)
        except SlurmError as error:
            self.error = error
            return
        self.asked, self.error = now, None
        for task in open_tasks:
            self._note(task, found.get(task), accounted.get(task), now)
        self._remember()

    def state(self, task: str) -> JobState | None:
        """The last known state of a task. One that may come back counts as pending until it has stayed."""
        sighting = self.jobs.get(task)
        if sighting is None:
            return None
        if sighting.state.state in FINAL and not sighting.is_final:
            return JobState("PENDING", f"after {sighting.state.state}", sighting.state.node)
        return sighting.state

    def _note(self, task: str, queued: JobState | None, accounted: JobState | None, now: float) -> None:
        if queued is None and accounted is None:
            self._unseen[task] = self._unseen.get(task, 0) + 1
            if self._unseen[task] < FORGOTTEN:
                return
            queued = JobState("GONE")
        else:
            self._unseen.pop(task, None)
        state = _merged(queued, accounted)
        before = self.jobs.get(task)
        since = before.since if before and before.state.state == state.state else now
        is_final = state.state in FINAL and (state.state not in MAY_COME_BACK or now - since >= SETTLE)
        self.jobs[task] = Sighting(state, since, is_final)

    def _accounted(self, tasks: list[str]) -> Mapping[str, JobState]:
        if not tasks:
            return {}
        if self._has_accounting is None:
            kind = client.config().get("AccountingStorageType", "")
            self._has_accounting = "slurmdbd" in kind
        if not self._has_accounting:
            return {}
        try:
            return client.accounted(tasks)
        except SlurmError:  # slurmdbd alone is away: squeue's answer is enough for most
            return {}

    def _remember(self) -> None:
        jobs = {
            job: {"state": asdict(sighting.state), "since": sighting.since, "is_final": sighting.is_final}
            for job, sighting in self.jobs.items()
        }
        self._file.parent.mkdir(parents=True, exist_ok=True)
        write_json(self._file, {"time": self.asked, "jobs": jobs})


def _merged(queued: JobState | None, accounted: JobState | None) -> JobState:
    """squeue's word for the state, since accounting lags behind; exit code and steps from accounting."""
    if queued is None or accounted is None:
        state = queued or accounted
        assert state is not None
        return state
    if queued.state not in FINAL:
        return queued
    return JobState(queued.state, queued.reason, queued.node or accounted.node, accounted.exit_code, accounted.step)
