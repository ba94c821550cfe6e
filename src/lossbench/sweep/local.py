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

    A single worker's jobs draw their progress on the terminal; those of several write to `log.txt` in their folders.
    Raises `SweepFailedError` at the end when a run did not finish; the others ran all the same.
    """
    console = Console(stderr=True)
    expect(jobs)
    waiting = [job for job in jobs if job.state != "finished"]
    done = f", {len(jobs) - len(waiting)} of them finished before" if len(waiting) < len(jobs) else ""
    console.print(f"{len(jobs)} runs{done}; {min(workers, len(waiting))} at a time.", highlight=False)
    try:
        _run_all(waiting, workers, console)
    finally:
        console.print(_states(jobs), highlight=False)
    unfinished = [job.identity.name for job in jobs if job.state != "finished"]
    if unfinished:
        raise SweepFailedError(
            f"{len(unfinished)} of {len(jobs)} runs did not finish: {', '.join(unfinished)}. "
            "Run the same command again to run only these."
        )


def _run_all(jobs: Sequence[Job], workers: int, console: Console) -> None:
    running: set[subprocess.Popen[bytes]] = set()
    ended: list[Job] = []

    def work(job: Job) -> None:
        process = _start(job, quiet=workers > 1)
        running.add(process)
        process.wait()
        running.discard(process)
        ended.append(job)
        reason = f": {job.reason}" if job.reason else ""
        state = MARKS.get(job.state, job.state)
        console.print(f"[{len(ended)}/{len(jobs)}]".replace("[", r"\[") + f" {state} {job.identity.name}{reason}")

    with ThreadPoolExecutor(max_workers=workers) as pool:
        try:
            list(pool.map(work, jobs))
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in running:
                process.terminate()
            raise


def _start(job: Job, quiet: bool) -> subprocess.Popen[bytes]:
    job.folder.mkdir(parents=True, exist_ok=True)
    frozen = job.folder / "job.yaml"
    write_atomically(frozen, yaml.safe_dump(job.config.model_dump(mode="json"), sort_keys=False, allow_unicode=True))
    command = [sys.executable, "-m", "lossbench.run", str(frozen)]
    environment = {"OMP_WAIT_POLICY": "PASSIVE", **os.environ, "PYTHONPATH": os.pathsep.join(_search_path())}
    if not quiet:
        return subprocess.Popen(command, env=environment)
    with (job.folder / "log.txt").open("ab") as log:
        return subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT)


def _search_path() -> list[str]:
    """What this process can import, the job can: also a loss of one's own in the present folder."""
    return [str(Path(entry).resolve()) for entry in sys.path]


def _states(jobs: Sequence[Job]) -> Table:
    table = Table(title=f"Study {jobs[0].config.study}" if jobs else None, title_justify="left")
    for column in ("run", "state", "folder or reason"):
        table.add_column(column, overflow="fold")
    for job in jobs:
        table.add_row(job.identity.name, MARKS.get(job.state, job.state), job.reason or str(job.folder))
    return table
