"""From targets to a clean list of runs: read the sources, merge the plan, settle duplicates, judge what is usable."""

from __future__ import annotations

import math
import os
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from lossbench.report import sources
from lossbench.report.errors import NoRunsError
from lossbench.report.evaluations import with_evaluations
from lossbench.report.metrics import describe
from lossbench.report.numbers import timestamp
from lossbench.report.records import UNKNOWN, RunRecord, State

AGREEMENT = 1e-6  # relative; two sources of one run may differ by so much


@dataclass(frozen=True)
class Collection:
    """All runs of a report, in a fixed order; missing ones included.

    `has_plan` is False where no sweep.json told what to expect: then what was found is all that is known. `incomplete`
    says why a service did not give all of its runs; it is empty where nothing is lacking. `baseline` is the loss that
    the plans compare with, where they agree.
    """

    records: tuple[RunRecord, ...]
    has_plan: bool
    problems: tuple[str, ...]
    incomplete: tuple[str, ...] = ()
    baseline: str | None = None

    def count(self, state: State) -> int:
        """How many runs are in a state."""
        return sum(record.state is state for record in self.records)


def collect(
    targets: Sequence[str | Path], now: float | None = None, options: sources.Options = sources.DEFAULT
) -> Collection:
    """Read every target with every source that accepts it.

    Args:
        targets: run folders, study folders, folders of studies (and what other sources accept).
        now: seconds since 1970, to tell a running run from a crashed one; the clock if None.
        options: how sources read that ask a service over the network.

    Raises:
        NoRunsError: nothing was found in any target.
        SourceError: a service refused to answer.
    """
    now = time.time() if now is None else now
    known: dict[str, list[RunRecord]] = defaultdict(list)  # by id, the most trusted source first
    expected: list[RunRecord] = []
    problems: list[str] = []
    incomplete: list[str] = []
    looked: list[str] = []
    plans = 0
    baselines: dict[str, str] = {}
    places: set[tuple[str, str]] = set()
    real: dict[Path, str] = {}
    for source in sources.available():
        for target in map(str, targets):
            if not source.accepts(target):
                continue
            found = source.read(target, now, options)
            looked.append(f"{found.looked_in} ({found.files_seen} file{'s' * (found.files_seen != 1)})")
            problems += [problem for problem in found.problems if problem not in problems]
            if found.incomplete and found.incomplete not in incomplete:
                incomplete.append(found.incomplete)
            expected += found.expected
            plans += found.plans_seen
            baselines.update(found.baselines)
            for record in found.records:
                place = (record.source, _real(record.path, real) if record.path else record.location)
                if place not in places:
                    places.add(place)
                    known[record.id].append(record)
    absent = [str(target) for target in targets if not any(s.accepts(str(target)) for s in sources.available())]
    if not known and not expected:
        raise NoRunsError(" ".join([*incomplete, _nothing_found(looked, absent)]))
    problems += [f"{target} does not exist; nothing was read from it." for target in absent]
    records = [record for found_records in known.values() for record in _merge_sources(found_records)]
    records = _merge_plan(with_evaluations(records), expected)
    records = _settle_duplicates(records)
    records = _judge(records)
    baseline, doubts = _planned_baseline(baselines, records)
    problems += doubts
    in_order = tuple(sorted(records, key=lambda r: r.sort_key))
    return Collection(in_order, plans > 0, tuple(problems), tuple(incomplete), baseline)


def _planned_baseline(baselines: Mapping[str, str], records: Sequence[RunRecord]) -> tuple[str | None, list[str]]:
    """The one baseline of all plans that is a loss of these runs, and sentences on those that are not followed."""
    losses = {record.loss for record in records}
    problems = [
        f"{plan} names {loss!r} as the baseline, but no run trained with it."
        for plan, loss in sorted(baselines.items())
        if loss not in losses
    ]
    known = sorted({loss for loss in baselines.values() if loss in losses})
    if len(known) > 1:
        problems.append(f"The plans name different baselines ({', '.join(known)}); choose one with --baseline.")
    return (known[0] if len(known) == 1 else None), problems


def _real(path: Path, known: dict[Path, str]) -> str:
    """The path without links, so that a run that two targets hold is one; `known` are folders asked about before."""
    if path.is_symlink() or path.name in ("", ".."):
        return os.path.realpath(path)
    if path.parent not in known:
        known[path.parent] = os.path.realpath(path.parent)
    return os.path.join(known[path.parent], path.name)


def _merge_sources(records: list[RunRecord]) -> list[RunRecord]:
    """One source's records of one id, completed by the others: the most trusted source that knows more than the name.

    Several records of that source stay; they are copies or duplicates, which are settled later.
    """
    best = next((record for record in records if record.state is not State.EMPTY), records[0]).source
    others = [record for record in records if record.source != best]
    if not others:
        return records
    also_in = tuple(dict.fromkeys(record.source for record in others))
    merged = []
    for record in records:
        if record.source != best:
            continue
        conflicts = [c for other in others for c in _conflicts(record, other)]
        merged.append(
            replace(
                record,
                also_in=also_in,
                url=record.url or next((other.url for other in others if other.url), None),
                heartbeat=record.heartbeat or next((other.heartbeat for other in others if other.heartbeat), None),
                state=State.CONFLICT if conflicts else record.state,
                problems=(*record.problems, *conflicts),
            )
        )
    return merged


def _conflicts(record: RunRecord, other: RunRecord) -> list[str]:
    """Sentences on the numbers that two sources give differently of one finished attempt of a run.

    What says when it was created names the attempt. Another attempt may have other numbers (seconds, say), and so may
    the same run in another study.
    """
    if not record.state is other.state is State.FINISHED or (
        record.created and other.created and record.created != other.created
    ):
        return []
    return [
        f"{name} is {record.metrics[name]!r} in the {record.source}, but {other.metrics[name]!r} in the {other.source} "
        f"({other.location}); none of its values is used."
        for name in sorted(record.metrics.keys() & other.metrics.keys())
        if not _agree(record.metrics[name], other.metrics[name])
    ]


def _agree(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=AGREEMENT) or (math.isnan(one) and math.isnan(other))


def _nothing_found(looked: list[str], absent: list[str]) -> str:
    parts = []
    if looked:
        parts.append(f"looked in {', '.join(looked)}")
    if absent:
        parts.append(f"{', '.join(absent)} {'does' if len(absent) == 1 else 'do'} not exist")
    return (
        f"No runs found: {' and '.join(parts) or 'no place was given'}. A run is a folder with run.json, or a log of "
        "wandb (run-ID.wandb). Name a run, a study (runs/demo), the folder of all studies (runs), a runs.csv of a "
        "report, or a project (wandb:ENTITY/PROJECT); or start some runs with `python train.py`."
    )


def _merge_plan(records: list[RunRecord], expected: list[RunRecord]) -> list[RunRecord]:
    """Mark planned runs, lend the plan's identity to runs that lost theirs, and add those that were not found."""
    plan = {record.id: record for record in expected}
    merged = []
    for record in records:
        planned = plan.get(record.id)
        if planned is not None:
            lost = record.loss == UNKNOWN
            record = replace(
                record,
                planned=True,
                tags=tuple(dict.fromkeys((*record.tags, *planned.tags))),
                loss=planned.loss if lost else record.loss,
                model=planned.model if lost else record.model,
                dataset=planned.dataset if lost else record.dataset,
                seed=planned.seed if record.seed is None else record.seed,
                group=planned.group if lost else record.group,
            )
        merged.append(record)
    found = {record.id for record in records}
    return merged + [record for run_id, record in plan.items() if run_id not in found]


def _settle_duplicates(records: list[RunRecord]) -> list[RunRecord]:
    """Of several runs with one group and seed, the newest finished is kept (else the newest); the others are named."""
    same: dict[tuple[str, int | None], list[RunRecord]] = defaultdict(list)
    for record in records:
        if record.state is not State.MISSING and record.loss != UNKNOWN and record.seed is not None:
            same[record.group, record.seed].append(record)
    replaced: dict[int, RunRecord] = {}
    for twins in same.values():
        if len(twins) == 1:
            continue
        kept = max(twins, key=_newness)
        for twin in twins:
            if twin is not kept:
                why = f"Group and seed are those of {kept.location}, which is used instead (this one: {twin.state})."
                replaced[id(twin)] = replace(twin, state=State.DUPLICATE, problems=(*twin.problems, why))
    return [replaced.get(id(record), record) for record in records]


def _newness(record: RunRecord) -> tuple[bool, float, float, str]:
    return (
        record.state is State.FINISHED,
        timestamp(record.finished) or 0.0,
        timestamp(record.created) or 0.0,
        record.location,
    )


def _judge(records: list[RunRecord]) -> list[RunRecord]:
    """`invalid` and `incomplete` for finished runs, judged by the metrics that their peers have."""
    present: dict[tuple[str, str], set[str]] = defaultdict(set)
    for record in records:
        if record.state is State.FINISHED:
            present[record.model, record.dataset].update(record.metrics)
    in_percent = _named_in_percent(records)
    judged = []
    for record in records:
        if record.state is not State.FINISHED:
            judged.append(record)
            continue
        required = {name for name in present[record.model, record.dataset] if describe(name).is_required}
        problems = list(record.problems)
        invalid = absent = False
        for name in sorted(record.metrics):
            metric, value = describe(name), record.metrics[name]
            if not metric.is_valid(value):
                invalid |= name in required
                hint = " It looks like per cent; record a fraction." if name in in_percent else ""
                problems.append(f"{name} is {value:g}, {_bounds(metric.low, metric.high)}; it is left out.{hint}")
        for name in sorted(required - set(record.metrics)):
            absent = True
            problems.append(f"{name} is not recorded, though other runs of this model and dataset have it.")
        state = State.INVALID if invalid else State.INCOMPLETE if absent else State.FINISHED
        judged.append(replace(record, state=state, problems=tuple(problems)))
    return judged


def _bounds(low: float, high: float) -> str:
    if low == float("-inf") and high == float("inf"):
        return "not a finite number"
    if high == float("inf"):
        return f"not a finite number of at least {low:g}"
    return f"not a number from {low:g} to {high:g}"


def _named_in_percent(records: list[RunRecord]) -> set[str]:
    """Fractions of which every value lies in (1, 100]: logged as per cent by mistake."""
    values: dict[str, list[float]] = defaultdict(list)
    for record in records:
        for name, value in record.metrics.items():
            if describe(name).high == 1.0:
                values[name].append(value)
    return {name for name, found in values.items() if all(1.0 < value <= 100.0 for value in found)}


def state_counts(records: Sequence[RunRecord]) -> dict[State, int]:
    """How many runs are in each state, in the order in which states are listed; states without runs are left out."""
    counts = Counter(record.state for record in records)
    return {state: counts[state] for state in State if counts[state]}
