"""`runs.csv`, as a report wrote it: the runs of that report again, without their logs and examples.

One row a run; the columns of `COLUMNS` are known, every other one is a metric. Text that CSV cannot tell from numbers
is read as the number; an empty cell is an absent value.
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from lossbench.report.numbers import as_number, one_line
from lossbench.report.records import UNKNOWN, RunRecord, State
from lossbench.report.sources import DEFAULT, Found, Options
from lossbench.report.sources._fields import short
from lossbench.report.sources.run_folder import location_of

PRECEDENCE = 3
REQUIRED = ("id", "loss", "seed", "state")
COLUMNS = frozenset(
    "id name study group loss variant model dataset seed state attempt created finished seconds last_step "
    "checkpoint_step checkpoint_criterion source also_in location error url heartbeat tags planned".split()
)
# A report splits a loss into variants by its groups: these stand in for a group that was not written.
GROUP = ("variant", "loss", "model", "dataset")
JUDGED = frozenset({State.DUPLICATE, State.INVALID, State.INCOMPLETE})  # by a report; judged again from the numbers


def accepts(target: str) -> bool:
    """True for a CSV file."""
    return target.lower().endswith(".csv") and os.path.isfile(target)


def read(target: str, now: float, options: Options = DEFAULT) -> Found:
    """The runs of one file."""
    path = Path(target)
    found = Found(looked_in=target, files_seen=1)
    where = location_of(path.parent, path)
    try:
        text = path.read_text(encoding="utf-8-sig", errors="replace")
        reader = csv.DictReader(io.StringIO(text, newline=""))
        lacking = [column for column in REQUIRED if column not in (reader.fieldnames or [])]
        if lacking:
            found.problems.append(f"{where} is no runs.csv of a report: it has no column {', '.join(lacking)}.")
            return found
        for row in reader:
            _take(row, f"{where}, line {reader.line_num}", found)
        if found.expected:  # there was a plan, and what it expected was found or is missing
            found.plans_seen = 1
            found.expected += [replace(r, state=State.MISSING, metrics={}) for r in found.records if r.planned]
    except OSError as error:
        found.problems.append(f"{where} cannot be read: {error.strerror or error}.")
    except csv.Error as error:
        found.problems.append(f"{where}: {error}; what was read before is used.")
    return found


def _take(row: Mapping[str | None, str | list[str] | None], where: str, found: Found) -> None:
    cells = {key: value.strip() for key, value in row.items() if key is not None and isinstance(value, str)}
    if None in row or len(cells) < len([key for key in row if key is not None]):
        found.problems.append(f"{where} has another number of cells than the header; it is left out.")
        return
    if not cells["id"]:
        found.problems.append(f"{where} has no id; it is left out.")
        return
    problems: list[str] = []
    metrics = _metrics(cells, problems)
    record = RunRecord(
        id=one_line(cells["id"]),
        name=_text(cells, "name") or one_line(cells["id"]),
        study=_text(cells, "study") or "",
        group=_text(cells, "group") or "|".join(cells.get(key, "") for key in GROUP),
        loss=_text(cells, "loss") or UNKNOWN,
        model=_text(cells, "model") or UNKNOWN,
        dataset=_text(cells, "dataset") or UNKNOWN,
        seed=_whole(cells, "seed", problems),
        attempt=_whole(cells, "attempt", problems) or 1,
        state=_state(cells["state"], metrics, problems),
        created=_text(cells, "created"),
        finished=_text(cells, "finished"),
        duration=as_number(_number(cells.get("seconds", ""))),
        last_step=_whole(cells, "last_step", problems),
        checkpoint_step=_whole(cells, "checkpoint_step", problems),
        checkpoint_criterion=_text(cells, "checkpoint_criterion"),
        error=_text(cells, "error"),
        metrics=metrics,
        source="csv",
        location=where,
        url=_text(cells, "url"),
        heartbeat=_text(cells, "heartbeat"),
        tags=tuple((_text(cells, "tags") or "").split()),
        planned=cells.get("planned", "1") not in ("0", "False", "false"),
        problems=tuple(problems),
    )
    if record.state is State.MISSING:
        found.expected.append(record)
    else:
        found.records.append(record)


def _state(word: str, metrics: Mapping[str, float], problems: list[str]) -> State:
    """The recorded state; of a run that a report judged, what it must have been before: one that finished."""
    try:
        state = State(word)
    except ValueError:
        problems.append(f"The state {short(word)} is none; known: {', '.join(State)}.")
        return State.INVALID
    return State.FINISHED if state in JUDGED and metrics else state


def _text(cells: Mapping[str, str], key: str) -> str | None:
    return one_line(cells[key]) if cells.get(key) else None


def _number(cell: str) -> float | str | None:
    try:
        return float(cell) if cell else None
    except ValueError:
        return cell


def _whole(cells: Mapping[str, str], key: str, problems: list[str]) -> int | None:
    cell = cells.get(key, "")
    number = as_number(_number(cell))
    if number is not None and number.is_integer() and abs(number) < 2**53:
        return int(number)
    if cell:
        problems.append(f"`{key}` is {short(cell)} where a whole number is expected; it is ignored.")
    return None


def _metrics(cells: Mapping[str, str], problems: list[str]) -> dict[str, float]:
    metrics: dict[str, float] = {}
    for key, cell in cells.items():
        if key in COLUMNS or not cell:
            continue
        number = as_number(_number(cell))
        if number is None:
            problems.append(f"Metric {one_line(key)} is {short(cell)}, not a number; it is treated as absent.")
        else:
            metrics[one_line(key)] = number
    return metrics
