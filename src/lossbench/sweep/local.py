"""Run the jobs of a sweep on this machine, each in a process of its own."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from lossbench.sweep.child import is_running
from lossbench.sweep.plan import Job
from lossbench.sweep.process import freeze, note_end, start
from lossbench.sweep.start import Sweep, report_failures

MARKS = {"finished": "[green]finished[/]", "failed": "[red]failed[/]", "interrupted": "[yellow]interrupted[/]"}
ROWS = 200  # of the table at the end; a larger sweep shows what did not finish
POLL = 1.0  # seconds between looks at a run that another process runs


def launch(sweep: Sweep, workers: int) -> None:
    """Run what is waiting, `workers` at a time, then print a table of states.

    A single worker's jobs draw their progress on the terminal; those of several write to `log.txt` in their folders.
    Raises `SweepFailedError` at the end when a run did not finish; the others ran all the same.
    """
    console = Console(stderr=True)
    waiting = sweep.waiting
    console.print(f"{sweep.headline()}; {min(workers, len(waiting))} at a time.", highlight=False)
    try:
        _run_all(waiting, workers, console)
    finally:
        now = sweep.states_now()
        console.print(table(sweep.jobs, now), highlight=False)
    report_failures(sweep.jobs, now)


def _run_all(jobs: Sequence[Job], workers: int, console: Console) -> None:
    running: set[subprocess.Popen[bytes]] = set()
    ended: list[Job] = []
    stopped, starting = threading.Event(), threading.Lock()

    def followed(job: Job) -> bool:
        """Wait while another process runs it; whether one did, to its end."""
        if not is_running(job.folder):
            return False
        console.print(f"{job.identity.name} is run by another process already, which is waited for.", highlight=False)
        while is_running(job.folder) and not stopped.wait(POLL):
            pass
        return job.state in ("finished", "failed")

    def work(job: Job) -> None:
        if not followed(job):
            with starting:
                if stopped.is_set():
                    return
                freeze(job)
                process = start(job.folder, job.identity.id, quiet=workers > 1)
                running.add(process)
            code = process.wait()
            running.discard(process)
            if not stopped.is_set():
                note_end(job.folder, job.identity.id, code)
        ended.append(job)
        reason = f": {escape(job.reason)}" if job.reason else ""
        state = MARKS.get(job.state, job.state)
        console.print(rf"\[{len(ended)}/{len(jobs)}] {state} {job.identity.name}{reason}", highlight=False)

    with ThreadPoolExecutor(max_workers=workers) as pool:
        try:
            list(pool.map(work, jobs))
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
            stopped.set()
            with starting:
                for process in list(running):
                    process.terminate()
            raise


def table(jobs: Sequence[Job], states: Mapping[str, str]) -> Table:
    """All runs, or those that did not finish when there are many."""
    shown = jobs if len(jobs) <= ROWS else [job for job in jobs if states[job.identity.id] != "finished"]
    title = f"Study {jobs[0].config.study}" if jobs else ""
    hidden = len(jobs) - len(shown)
    made = Table(title=title, title_justify="left", caption=f"{hidden} more finished" if hidden else None)
    for column in ("run", "state", "folder or reason"):
        made.add_column(column, overflow="fold")
    for job in shown:
        state = states[job.identity.id]
        made.add_row(job.identity.name, MARKS.get(state, state), escape(job.reason or str(job.folder)))
    return made
