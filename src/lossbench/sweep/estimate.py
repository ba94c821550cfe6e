"""The grid of a sweep before it runs: states, and how long the rest will take, judged by finished neighbours."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from lossbench.sweep.plan import Job
from lossbench.tracking.record import read_result


@dataclass(frozen=True)
class Estimate:
    """Seconds that the waiting runs need one after the other; `unknown` of them have no neighbour to judge by."""

    seconds: float
    unknown: int


def estimate(finished: Sequence[Job], waiting: Sequence[Job]) -> Estimate:
    """Every waiting run takes as long as the mean of the finished runs with its model and dataset, else with its model,
    else with its dataset; a run without any such neighbour stays unknown."""
    known: dict[tuple[str, str], list[float]] = {}
    for job in finished:
        if result := read_result(job.folder):
            metrics = result["metrics"]
            seconds = float(metrics.get("time/train_s", 0.0)) + float(metrics.get("time/eval_s", 0.0))
            for kind in _kinds(job):
                known.setdefault(kind, []).append(seconds)
    total, unknown = 0.0, 0
    for job in waiting:
        neighbours = next((known[kind] for kind in _kinds(job) if kind in known), None)
        if neighbours:
            total += sum(neighbours) / len(neighbours)
        else:
            unknown += 1
    return Estimate(total, unknown)


def _kinds(job: Job) -> list[tuple[str, str]]:
    model, dataset = job.config.model.name, job.config.dataset.name
    return [(model, dataset), (model, ""), ("", dataset)]


def show_grid(jobs: Sequence[Job], waiting: Sequence[Job], states: Mapping[str, str], console: Console) -> None:
    """Print one line for all seeds of a combination, and the estimate."""
    table = Table(title=f"Study {jobs[0].config.study}", title_justify="left")
    for column in ("loss", "model", "dataset", "seeds", "state"):
        table.add_column(column, overflow="fold")
    groups: dict[str, list[Job]] = {}
    for job in jobs:
        groups.setdefault(job.identity.group, []).append(job)
    for group in groups.values():
        config = group[0].config
        counts = Counter(states[job.identity.id] for job in group)
        table.add_row(
            config.loss.name,
            config.model.name,
            config.dataset.name,
            _seeds([job.config.seed for job in group]),
            ", ".join(f"{count} {state}" for state, count in sorted(counts.items())),
        )
    console.print(table, highlight=False)
    found = estimate([job for job in jobs if states[job.identity.id] == "finished"], waiting)
    parts = [f"{len(jobs)} runs, {len(waiting)} to run."]
    if len(waiting) > found.unknown:
        judged = f"{len(waiting) - found.unknown} of them" if found.unknown else "Together"
        parts.append(f"{judged} need about {duration(found.seconds)} on one device, judged by finished runs like them.")
    if found.unknown:
        which = "they" if found.unknown == len(waiting) else f"{found.unknown} of them"
        parts.append(f"How long {which} take is not known: no run like them has finished.")
    console.print(" ".join(parts), highlight=False)


def duration(seconds: float) -> str:
    """`45 s`, `12 min`, `3 h 20 min`, `2 d 4 h`."""
    minutes = round(seconds / 60)
    if seconds < 90:
        return f"{seconds:.0f} s"
    if minutes < 90:
        return f"{minutes} min"
    if minutes < 48 * 60:
        return f"{minutes // 60} h {minutes % 60} min"
    return f"{minutes // 1440} d {minutes % 1440 // 60} h"


def _seeds(seeds: Sequence[int]) -> str:
    """`0-4, 7`."""
    parts: list[list[int]] = []
    for seed in sorted(set(seeds)):
        if parts and seed == parts[-1][-1] + 1:
            parts[-1].append(seed)
        else:
            parts.append([seed])
    return ", ".join(f"{part[0]}-{part[-1]}" if len(part) > 2 else ", ".join(map(str, part)) for part in parts)
