"""Offline logs of wandb: every run-ID.wandb below a folder, the attempts of one run put together.

Read without wandb, so that a report needs neither the package nor a server. What is damaged becomes a sentence in
`problems`, and the records around the damage are used.
"""

from __future__ import annotations

import os
import re
import stat
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from lossbench.report.numbers import one_line
from lossbench.report.records import History, Keys, RunRecord, State
from lossbench.report.sources import DEFAULT, Found, Options
from lossbench.report.sources._log_cache import LogCache
from lossbench.report.sources._run_files import merge_attempts, series_of
from lossbench.report.sources._wandb_log import WandbLog, read_log, read_rows, sentences
from lossbench.report.sources._wandb_record import record_of, same_configuration
from lossbench.report.sources.run_folder import IDLE_SECONDS, location_of

PRECEDENCE = 1
DEPTH = 7  # folders below the target: runs/study/run/wandb/offline-run-*/
LOG = re.compile(r"run-(.+)\.wandb")
SKIPPED_FOLDERS = frozenset({"checkpoints", "__pycache__", "files", "logs", "tmp"})
INTERRUPTED = (143, 255)  # SIGTERM as lossbench records it; wandb's own code for Ctrl-C
CRASHED = 254  # what wandb writes for a run whose process is gone


def accepts(target: str) -> bool:
    """True for folders, and for one log itself."""
    return os.path.isdir(target) or (target.endswith(".wandb") and os.path.isfile(target))


def read(target: str, now: float, options: Options = DEFAULT) -> Found:
    """All runs that left a log below `target`."""
    root = Path(target)
    base = root.parent if root.is_file() else root
    found = Found(looked_in=str(root))
    runs: dict[str, list[WandbLog]] = defaultdict(list)
    kept = LogCache(options.api_cache)
    for file in _logs(root, found):
        match = LOG.fullmatch(file.name)
        log = kept.read(file, read_log)
        if log.trouble and not log.trouble.startswith("is no log of wandb: it is cut off"):
            found.problems.append(f"{location_of(base, file.parent)}: {'; '.join(sentences(log, False))}")
            continue
        runs[log.id or (match.group(1) if match else file.stem)].append(log)
    kept.save()
    for run_id, logs in runs.items():
        logs.sort(key=lambda log: (log.started or 0.0, log.path.parent.name))
        found.records.append(record(run_id, logs, location_of(base, logs[-1].path.parent), now))
    return found


def _logs(root: Path, found: Found) -> list[Path]:
    if root.is_file():
        found.files_seen = 1
        return [root]
    files = []
    base = len(root.parts)
    for folder, subfolders, names in os.walk(root):  # links, such as latest-run, are not followed
        found.files_seen += len(names)
        here = Path(folder)
        files += [here / name for name in sorted(names) if LOG.fullmatch(name) and _is_plain(here / name)]
        too_deep = len(here.parts) - base >= DEPTH
        subfolders[:] = [] if too_deep else sorted(set(subfolders) - SKIPPED_FOLDERS)
    return files


def _is_plain(file: Path) -> bool:
    """True for a file that is no link (which would be counted twice) and no pipe (which would never end)."""
    try:
        return stat.S_ISREG(file.lstat().st_mode)
    except OSError:
        return False


def record(run_id: str, logs: Sequence[WandbLog], location: str, now: float) -> RunRecord:
    """One run out of the logs of its attempts, in the order of their beginning.

    The state is that of the newest attempt that holds anything. The summary is the newest attempt's, completed by
    earlier attempts of the same configuration for keys that it lacks; as long as the newest one has not finished, these
    are last values and no results.
    """
    told = [log for log in logs if not log.is_empty]
    newest = told[-1] if told else logs[-1]
    state = _state(newest, now)
    problems: list[str] = []
    for log in logs:
        problems += sentences(log, still_written=log is newest and state is State.RUNNING) if not log.is_empty else []
    if not told:
        problems.append(f"{newest.path.name} holds no run ({newest.size} bytes): it ended before anything was written.")
    elif state is State.CRASHED and newest.exit_code is None:
        problems.append("Its log ends without an exit record, and was silent for more than ten minutes.")
    made = record_of(
        run_id,
        newest.config,
        _summary(told),
        name=newest.name,
        project=newest.project,
        group=newest.group,
        is_finished=state is State.FINISHED,
        problems=problems,
    )
    started = min((log.started for log in told if log.started), default=None)
    return replace(
        made,
        state=state,
        attempt=max(made.attempt, len(told), 1),
        created=made.created or _iso(started),
        finished=_iso(newest.changed) if newest.exit_code is not None else None,
        duration=max(0.0, newest.changed - newest.started) if newest.started and newest.changed else None,
        tags=tuple(one_line(tag) for tag in newest.tags),
        heartbeat=_iso(newest.changed or None),
        source="wandb log",
        path=newest.path.parent,
        location=location,
        read_history=partial(_history, tuple(told)),
    )


def _state(log: WandbLog, now: float) -> State:
    if log.exit_code is None:
        if now - log.changed <= IDLE_SECONDS and not log.is_empty:
            return State.RUNNING
        return State.EMPTY if log.is_empty else State.CRASHED
    if log.exit_code == 0:
        return State.FINISHED
    if log.preempting or log.exit_code in INTERRUPTED:
        return State.INTERRUPTED
    return State.CRASHED if log.exit_code == CRASHED else State.FAILED


def _summary(logs: Sequence[WandbLog]) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for log in logs:
        if log is logs[-1] or same_configuration(log.config, logs[-1].config):
            merged.update(log.summary)
    return merged


def _history(logs: Sequence[WandbLog], keys: Keys) -> History:
    rows, cut = merge_attempts([read_rows(log, keys) for log in logs])
    return History(series=series_of(rows, keys), overlap=cut)


def _iso(seconds: float | None) -> str | None:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds") if seconds else None
