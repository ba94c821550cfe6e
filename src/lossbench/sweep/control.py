"""Reach into a study that runs: cancel its runs, or start them again."""

from __future__ import annotations

import json
import os
import platform
import signal
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from lossbench.errors import ConfigError
from lossbench.sweep.outcome import Kind
from lossbench.sweep.process import FROZEN, note_end, start
from lossbench.sweep.slurm import client, registry
from lossbench.sweep.slurm.checks import check_cluster
from lossbench.sweep.slurm.settings import parse_settings
from lossbench.sweep.slurm.submit import RunRef, submit
from lossbench.sweep.slurm.watch import Watcher
from lossbench.sweep.status import Standing, expected, find_run, standings, study_folder

RETRIED = frozenset(
    {Kind.FAILED, Kind.OUT_OF_MEMORY, Kind.TIMED_OUT, Kind.PREEMPTED, Kind.CANCELLED, Kind.NODE_LOST, Kind.INTERRUPTED}
)


@dataclass(frozen=True)
class Target:
    """What a name on the command line means: a study's runs, or one of them."""

    study: Path
    runs: tuple[RunRef, ...]


def target(runs: Path, wanted: str) -> Target:
    """A study by name or path, else one run by its id, name, folder or job.

    Raises:
        ConfigError: it is neither, or means several runs.
    """
    with suppress(ConfigError):
        study = study_folder(runs, wanted)
        if not (study / "run.json").exists() and not (study / FROZEN).exists():
            return Target(study, tuple(expected(study)))
    study, run = find_run(runs, wanted)
    return Target(study, (run,))


def looked_at(found: Target) -> tuple[list[Standing], Watcher]:
    """Where the runs stand, after asking SLURM once about those that have jobs."""
    tasks = registry.latest_tasks(registry.recover(found.study))
    watcher = Watcher.of(found.study)
    watcher.look(tasks[run.id] for run in found.runs if run.id in tasks)
    return standings(found.study, found.runs, watcher), watcher


def cancel(found: Target) -> list[str]:
    """End what runs or waits; returns the names of the runs. A cancelled run keeps its last checkpoint.

    Raises:
        UnreachableError: SLURM does not answer, so that nothing was cancelled there.
    """
    seen, watcher = looked_at(found)
    watcher.insist("Nothing was cancelled; try again when the cluster answers.")
    active = [one for one in seen if one.is_active]
    client.cancel([one.task for one in active if one.task])
    ended = [one.run.name for one in active if one.task]
    ended += [one.run.name for one in active if not one.task and _terminate(one.run)]
    return ended


def retry(found: Target) -> tuple[list[str], list[str]]:
    """Start again what ended without being finished, in the way in which it was started last.

    Returns:
        (names of the runs, ids of SLURM arrays); runs without a job are run here, one after the other.
    """
    seen, watcher = looked_at(found)
    watcher.insist("Nothing was started; try again when the cluster answers.")
    again = [one.run for one in seen if one.outcome.kind in RETRIED]
    absent = [run.name for run in again if not (run.folder / FROZEN).exists()]
    if absent:
        raise ConfigError(f"{absent[0]} was never part of a sweep; run its own command again.")
    last = {run: submission for submission in registry.submissions(found.study) for run in submission.runs}
    arrays: list[str] = []
    for submission in dict.fromkeys(last[run.id].token for run in again if run.id in last):
        some = [run for run in again if run.id in last and last[run.id].token == submission]
        settings = parse_settings(last[some[0].id].settings)
        arrays += submit(found.study, some, settings, check_cluster(found.study, len(some), settings))
    for run in again:
        if run.id not in last:
            note_end(run.folder, run.id, start(run.folder, run.id, quiet=False).wait())
    return [run.name for run in again], arrays


def _terminate(run: RunRef) -> bool:
    """SIGTERM to a run's process on this machine; it saves its state and ends."""
    with suppress(FileNotFoundError, json.JSONDecodeError, KeyError, ProcessLookupError, PermissionError):
        about = json.loads((run.folder / "run.json").read_text(encoding="utf-8"))
        if about["host"] == platform.node():
            os.kill(int(about["pid"]), signal.SIGTERM)
            return True
    return False
