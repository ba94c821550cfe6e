"""Runs of a project of wandb's service: `wandb:ENTITY/PROJECT`.

A thousand runs take three requests. With a cache, only runs that changed are asked for whole, and what was known is
still reported when the service is out of order, marked as incomplete. Rows of training logs take a few requests a run,
so they are left out unless they are wanted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import Any

from lossbench.errors import ConfigError
from lossbench.report.numbers import as_number, timestamp
from lossbench.report.records import History, Keys, RunRecord, State
from lossbench.report.sources import DEFAULT, Found, Options, SourceError, _api_cache
from lossbench.report.sources._run_files import Row, merge_attempts, series_of
from lossbench.report.sources._wandb_record import STATUS, STEP, record_of
from lossbench.report.sources._wandb_service import (
    NEWEST_FIRST,
    BrokenRunError,
    Listing,
    OutOfOrderError,
    Service,
    ServiceRun,
    host_of,
    quiet_wandb,
)

PRECEDENCE = 2
SCHEME = "wandb:"
TARGET = re.compile(r"wandb:/{0,2}([^/\s]+)/([^/\s]+)/?")
STATES = {
    "finished": State.FINISHED,
    "failed": State.FAILED,
    "crashed": State.CRASHED,
    "killed": State.INTERRUPTED,
    "preempted": State.INTERRUPTED,
    "preempting": State.INTERRUPTED,
    "running": State.RUNNING,
    "pending": State.RUNNING,
}


def accepts(target: str) -> bool:
    """True for `wandb:...`."""
    return target.startswith(SCHEME)


def split_target(target: str) -> tuple[str, str]:
    """(entity, project) of `wandb:ENTITY/PROJECT`.

    Raises:
        ConfigError: the target has another shape.
    """
    match = TARGET.fullmatch(target)
    if match is None:
        raise ConfigError(f"{target!r} names no project of wandb; write wandb:ENTITY/PROJECT.")
    return match[1], match[2]


def read(target: str, now: float, options: Options = DEFAULT) -> Found:
    """All runs of the project.

    Raises:
        ConfigError: the target has another shape.
        SourceError: the key is wrong, there is no such project, or wandb is not installed.
    """
    entity, project = split_target(target)
    found = Found(looked_in=target)
    with quiet_wandb() as wandb:
        cached: dict[str, ServiceRun] = {}
        key = f"{host_of(wandb)} {entity}/{project}"
        try:
            cached = _from_cache(_api_cache.read(options.api_cache, key))
            service = Service(wandb, entity, project, options.api_timeout)
            runs = _runs(service, cached, found)
            if options.api_histories:
                _add_rows(service, runs, found)
            _api_cache.write(options.api_cache, key, {run_id: run.as_json() for run_id, run in runs.items()})
        except OutOfOrderError as error:
            runs = cached
            shown = "1 run is" if len(cached) == 1 else f"{len(cached)} runs are"
            kept = f"{shown} shown as last known" if cached else "none of its runs is shown"
            found.incomplete = f"{target} is incomplete: {error}; {kept}."
    found.files_seen = len(runs)
    found.records = [_record(run, project, target) for run in runs.values()]
    return found


def _runs(service: Service, cached: dict[str, ServiceRun], found: Found) -> dict[str, ServiceRun]:
    """Every run of the project, whole, with as few requests as the cache allows."""
    listing, is_whole = None, not cached
    if is_whole:
        try:
            listing = service.listing()
        except BrokenRunError:
            is_whole = False
    if listing is None:
        listing = service.listing(whole=False)
    _complete(service, listing, is_whole, found)
    if is_whole:
        return listing.runs
    unchanged = {
        run_id: cached[run_id]
        for run_id, run in listing.runs.items()
        if run_id in cached and cached[run_id].version == run.version and run.state != "running"
    }
    changed = [run_id for run_id in listing.runs if run_id not in unchanged]
    loaded = service.load(changed)
    runs = {}
    for run_id, run in listing.runs.items():
        if run_id in unchanged:
            runs[run_id] = unchanged[run_id]
        elif run_id not in loaded:
            runs[run_id] = replace(run, state="deleted")
        elif loaded[run_id].trouble:
            runs[run_id] = replace(run, trouble=loaded[run_id].trouble)
        else:
            runs[run_id] = loaded[run_id]
    return runs


def _complete(service: Service, listing: Listing, is_whole: bool, found: Found) -> None:
    """Look again from the other end if pages omitted runs, and say so if some are lacking still."""
    if listing.lacking:
        try:
            again = service.listing(NEWEST_FIRST, whole=is_whole)
            listing.runs.update({run_id: run for run_id, run in again.runs.items() if run_id not in listing.runs})
        except BrokenRunError:
            pass
    if listing.lacking:
        found.incomplete = (
            f"wandb:{service.path} is incomplete: the service counts {listing.total} runs, but lists "
            f"{len(listing.runs)} in either order. Ask again later."
        )


def _from_cache(kept: dict[str, dict[str, Any]]) -> dict[str, ServiceRun]:
    names = {part.name for part in fields(ServiceRun)}
    return {run_id: ServiceRun(**run) for run_id, run in kept.items() if set(run) == names}


def _record(run: ServiceRun, project: str, target: str) -> RunRecord:
    problems: list[str] = []
    state = State.MISSING if run.state == "deleted" else STATES.get(run.state)
    if state is None:
        problems.append(f"The service gives the state {run.state!r}; known: {', '.join(STATES)}.")
        state = State.INVALID
    if run.state == "deleted":
        problems.append("It was deleted while it was read.")
    if run.trouble:
        problems.append(f"Its configuration or summary cannot be read ({run.trouble}); none of its numbers is used.")
        state = State.INVALID
    if state is State.FAILED and run.summary.get(STATUS) == State.INTERRUPTED:
        state = State.INTERRUPTED  # the service has no word for a run that a signal ended
    record = record_of(
        run.id,
        run.config,
        run.summary,
        name=run.name,
        project=project,
        group=run.group,
        is_finished=state is State.FINISHED,
        problems=problems,
    )
    created = record.created or run.created
    begin, end = timestamp(created), timestamp(run.heartbeat)
    return replace(
        record,
        state=state,
        created=created,
        finished=run.heartbeat if state not in (State.RUNNING, State.MISSING) else None,
        duration=end - begin if begin is not None and end is not None and end >= begin else None,
        url=run.url or None,
        heartbeat=run.heartbeat,
        tags=tuple(run.tags),
        source="wandb API",
        location=f"{target.rstrip('/')}/{run.id}",
        read_history=_history_of(run.rows) if run.rows else record.read_history,
    )


def _add_rows(service: Service, runs: dict[str, ServiceRun], found: Found) -> None:
    """Ask for the training log of every run whose log is not known from before."""
    wanted = [run for run in runs.values() if run.rows is None and run.state != "deleted"]
    for number, run in enumerate(wanted):
        try:
            run.rows = [row for raw in service.rows(run.id) if (row := _row(raw))]
        except (OutOfOrderError, BrokenRunError, SourceError) as error:
            left = len(wanted) - number
            lacking = "the training log of 1 run is" if left == 1 else f"the training logs of {left} runs are"
            found.incomplete = f"wandb:{service.path} is incomplete: {lacking} lacking ({error})."
            return


def _row(raw: dict[str, Any]) -> Row | None:
    """Numbers of a logged row by key, at its optimizer step or else at wandb's own."""
    step = as_number(raw.get(STEP))
    if step is None or not step.is_integer():
        step = as_number(raw.get("_step"))
    values = {key: n for key, value in raw.items() if not key.startswith("_") and (n := as_number(value)) is not None}
    values.pop(STEP, None)
    return (int(step), values) if step is not None and values else None


def _history_of(rows: Sequence[Row]) -> Callable[[Keys], History]:
    def read_history(keys: Keys) -> History:
        kept, cut = merge_attempts([[row for row in rows if keys is None or any(key in row[1] for key in keys)]])
        return History(series=series_of(kept, keys), overlap=cut)

    return read_history
