"""Submit a sweep, follow it to its end, and say what came of every run."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from lossbench.sweep.outcome import Kind
from lossbench.sweep.plan import Job
from lossbench.sweep.process import freeze
from lossbench.sweep.slurm import registry
from lossbench.sweep.slurm.checks import check_cluster, check_processes
from lossbench.sweep.slurm.settings import SlurmSettings
from lossbench.sweep.slurm.submit import RunRef, submit
from lossbench.sweep.slurm.watch import Watcher
from lossbench.sweep.start import Sweep, SweepFailedError
from lossbench.sweep.status import Standing, standings

FIRST_PAUSE = 2.0  # seconds; later looks are `poll_s` apart
COLOURS = {Kind.FINISHED: "green", Kind.FAILED: "red", Kind.OUT_OF_MEMORY: "red", Kind.RUNNING: "cyan"}
ROWS = 200


def launch(sweep: Sweep, settings: SlurmSettings) -> None:
    """Submit what is waiting and has no job yet, then follow all of it.

    Raises:
        ConfigError: the cluster cannot run such jobs; nothing was submitted.
        SweepFailedError: at the end, when a run did not finish.
    """
    console = Console(stderr=True)
    check_processes([job.config for job in sweep.waiting], settings)
    console.print(sweep.headline() + ".", highlight=False)
    studies: dict[Path, list[Job]] = {}
    for job in sweep.jobs:
        studies.setdefault(job.folder.parent, []).append(job)
    waiting = {job.identity.id for job in sweep.waiting}
    for study, jobs in studies.items():
        if todo := [job for job in jobs if job.identity.id in waiting]:
            _submit(study, todo, settings, console)
            hint = f"lossbench runs {study} shows them; lossbench runs cancel {study} ends them."
            console.print(hint, highlight=False, style="dim")
    if settings.wait:
        follow({study: [_ref(job) for job in jobs] for study, jobs in studies.items()}, settings.poll_s, console)


def follow(studies: dict[Path, list[RunRef]], poll_s: float, console: Console) -> None:
    """Wait for the ends of all jobs; print each as it comes, then the table.

    Ctrl-C leaves: the jobs go on, and `lossbench runs attach` comes back to them.
    """
    followers = [_Follower(study, runs, console) for study, runs in studies.items()]
    pause = min(FIRST_PAUSE, poll_s)
    while True:
        try:
            if all([follower.look() for follower in followers]):
                break
            time.sleep(pause)
        except KeyboardInterrupt:
            if _wants_to_leave(console):
                raise
        pause = min(pause * 1.5, poll_s)
    ended = [standing for follower in followers for standing in follower.last]
    for study, follower in zip(studies, followers, strict=True):
        console.print(table(study.name, follower.last), highlight=False)
    raise_failures(ended)


def raise_failures(ended: Sequence[Standing]) -> None:
    """Raise `SweepFailedError` for the runs that did not finish, with what to do about them."""
    bad = [standing for standing in ended if standing.outcome.kind is not Kind.FINISHED]
    if not bad:
        return
    names = ", ".join(f"{standing.run.name} ({standing.outcome.kind})" for standing in bad[:20])
    more = f" and {len(bad) - 20} more" if len(bad) > 20 else ""
    advice = []
    if any(not standing.outcome.kind.is_failure for standing in bad):
        advice.append("The same command again goes on with those that did not fail.")
    if any(standing.outcome.kind.is_failure for standing in bad):
        advice.append("sweep.retry_failed=true runs failed ones again.")
    raise SweepFailedError(f"{len(bad)} of {len(ended)} runs did not finish: {names}{more}. {' '.join(advice)}")


def table(title: str, found: Sequence[Standing]) -> Table:
    """States and reasons, of all runs or, of many, of those that did not finish."""
    shown = found if len(found) <= ROWS else [one for one in found if one.outcome.kind is not Kind.FINISHED]
    hidden = len(found) - len(shown)
    made = Table(title=f"Study {title}", title_justify="left", caption=f"{hidden} more finished" if hidden else None)
    for column in ("run", "state", "job", "folder or reason"):
        made.add_column(column, overflow="fold")
    for one in shown:
        made.add_row(
            one.run.name, coloured(one.outcome.kind), one.task or "", escape(one.outcome.reason or str(one.run.folder))
        )
    return made


def coloured(kind: Kind) -> str:
    return f"[{COLOURS.get(kind, 'yellow')}]{kind}[/]"


def _submit(study: Path, jobs: Sequence[Job], settings: SlurmSettings, console: Console) -> None:
    submissions = registry.recover(study)
    watcher = Watcher.of(study)
    tasks = registry.latest_tasks(submissions)
    asked = {tasks[job.identity.id] for job in jobs if job.identity.id in tasks}
    watcher.look(asked)
    watcher.insist("Nothing was submitted; try again when the cluster answers.")
    refs = [_ref(job) for job in jobs]
    found = standings(study, refs, watcher)
    active = {one.run.id for one in found if one.is_active}
    done = {one.run.id for one in found if one.outcome.kind is Kind.FINISHED}  # since the sweep was planned
    if active:
        console.print(f"{len(active)} of them have a job or a process already, and are followed.", highlight=False)
    todo = [job for job in jobs if job.identity.id not in active | done]
    if not todo:
        return
    largest = check_cluster(study, len(todo), settings)
    for job in todo:
        freeze(job)
    arrays = submit(study, [_ref(job) for job in todo], settings, largest)
    word = "array" if len(arrays) == 1 else "arrays"
    console.print(f"Submitted {len(todo)} runs as {word} {', '.join(arrays)}.", highlight=False)


def _ref(job: Job) -> RunRef:
    return RunRef(job.identity.id, job.identity.name, job.folder)


class _Follower:
    """One study's runs, looked at again and again."""

    def __init__(self, study: Path, runs: Sequence[RunRef], console: Console) -> None:
        self.study, self.runs, self.console = study, runs, console
        self.watcher = Watcher.of(study)
        self.last: list[Standing] = []
        self._told: set[str] = set()
        self._finished: dict[str, Standing] = {}
        self._trouble = ""
        self._is_first = True

    def look(self) -> bool:
        """True when every run has ended."""
        tasks = registry.latest_tasks(registry.submissions(self.study))
        open_runs = [run.id for run in self.runs if run.id not in self._told]
        self.watcher.look(tasks[run] for run in open_runs if run in tasks)
        if self.watcher.trouble and self.watcher.trouble != self._trouble:
            self.console.print(f"[yellow]{escape(self.watcher.trouble)}[/] Jobs are not harmed; asking again.")
        self._trouble = self.watcher.trouble
        changing = [run for run in self.runs if run.id not in self._finished]
        found = standings(self.study, changing, self.watcher)
        self._finished |= {one.run.id: one for one in found if one.outcome.kind is Kind.FINISHED}
        latest = self._finished | {one.run.id: one for one in found}
        self.last = [latest[run.id] for run in self.runs]
        for one in self.last:
            if one.is_active or one.outcome.kind is Kind.MISSING:
                continue
            if one.run.id not in self._told:
                self._told.add(one.run.id)
                if not self._is_first or one.outcome.kind is not Kind.FINISHED:
                    self._tell(one)
        self._is_first = False
        return not any(one.is_active for one in self.last)

    def _tell(self, one: Standing) -> None:
        reason = f": {escape(one.outcome.reason)}" if one.outcome.reason else ""
        count = rf"\[{len(self._told)}/{len(self.runs)}]"
        self.console.print(f"{count} {coloured(one.outcome.kind)} {one.run.name}{reason}", highlight=False)


def _wants_to_leave(console: Console) -> bool:
    """Ask once; a second Ctrl-C, or a launcher without a terminal, means yes."""
    console.print("\nThe jobs go on running. `lossbench runs attach STUDY` comes back to them.", highlight=False)
    if not sys.stdin.isatty():
        return True
    try:
        answer = input("Stop watching? [Y/n] ")
    except (KeyboardInterrupt, EOFError):
        return True
    if answer.strip().lower() not in ("n", "no"):
        return True
    console.print("Still watching.")
    return False
