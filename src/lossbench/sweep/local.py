"""Run the jobs of a sweep on this machine, each in a process of its own.

A job is one frozen YAML file given to `python -m lossbench.run`: nothing of one run can leak into the next, and one
that fails, or is killed, stops no other.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import yaml
from rich.console import Console
from rich.table import Table

from lossbench.errors import LossbenchError
from lossbench.sweep.plan import Job, expect
from lossbench.tracking.files import write_atomically

MARKS = {"finished": "[green]finished[/]", "failed": "[red]failed[/]", "interrupted": "[yellow]interrupted[/]"}


class SweepFailedError(LossbenchError):
    """At least one run of a sweep did not finish."""


def launch(jobs: Sequence[Job], workers: int) -> None:
    """Run what is not finished, `workers` at a time, then print a table of states.

    Raises `SweepFailedError` at the end when a run did not finish; the others ran all the same.
    """
    console = Console(stderr=True)
    expect(jobs)
    waiting = [job for job in jobs if job.state != "finished"]
    done = f", {len(jobs) - len(waiting)} of them finished before" if len(waiting) < len(jobs) else ""
    console.print(f"{len(jobs)} runs{done}; {min(workers, len(waiting))} at a time.")
    running: set[subprocess.Popen[bytes]] = set()

    def work(job: Job) -> None:
        # One job at a time may draw its progress bar on the terminal; several would overwrite each other.
        process = subprocess.Popen(
            [sys.executable, "-m", "lossbench.run", str(_freeze(job))],
            env={**os.environ, "OMP_WAIT_POLICY": os.environ.get("OMP_WAIT_POLICY", "PASSIVE")},
            stdout=None if workers == 1 else subprocess.DEVNULL,
            stderr=None if workers == 1 else _log(job).open("ab"),
        )
        running.add(process)
        code = process.wait()
        running.discard(process)
        if workers > 1 or code not in (0, 1):
            reason = f": {job.reason}" if job.reason else ""
            console.print(f"{MARKS.get(job.state, job.state)} {job.identity.name}{reason}", highlight=False)

    try:
        with ThreadPoolExecutor(max_workers=workers) as pool:
            try:
                list(pool.map(work, waiting))
            except KeyboardInterrupt:
                pool.shutdown(wait=False, cancel_futures=True)
                for process in running:
                    process.terminate()
                raise
    finally:
        _print_states(jobs, console)
    failed = [job for job in jobs if job.state != "finished"]
    if failed:
        raise SweepFailedError(
            f"{len(failed)} of {len(jobs)} runs did not finish: {', '.join(job.identity.name for job in failed)}. "
            "Run the same command again to run only these."
        )


def _freeze(job: Job) -> Path:
    job.folder.mkdir(parents=True, exist_ok=True)
    file = job.folder / "job.yaml"
    write_atomically(file, yaml.safe_dump(job.config.model_dump(mode="json"), sort_keys=False, allow_unicode=True))
    return file


def _log(job: Job) -> Path:
    return job.folder / "log.txt"


def _print_states(jobs: Sequence[Job], console: Console) -> None:
    table = Table(title=f"Study {jobs[0].config.study}" if jobs else None, title_justify="left")
    for column in ("run", "state", "folder or reason"):
        table.add_column(column, overflow="fold")
    for job in jobs:
        table.add_row(job.identity.name, MARKS.get(job.state, job.state), job.reason or str(job.folder))
    console.print(table, highlight=False)
