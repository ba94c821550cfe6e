"""What every launcher does before it starts a job: compose all runs, check them, and see what is to be done."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from hydra.types import HydraContext
from omegaconf import DictConfig, OmegaConf
from rich.console import Console

from lossbench.config import RunConfig, parse
from lossbench.errors import ConfigError, LossbenchError
from lossbench.sweep.compose import Composer
from lossbench.sweep.estimate import show_grid
from lossbench.sweep.plan import Job, expect, plan, states
from lossbench.sweep.study import SweepConfig, parse_sweep

NOT_CHECKED = {"seed", "study", "paths", "tracking"}  # sections that decide nothing about what can work


class SweepFailedError(LossbenchError):
    """At least one run of a sweep did not finish."""


@dataclass(frozen=True)
class Sweep:
    """All runs of a sweep, and those of them that are to be run now."""

    jobs: tuple[Job, ...]
    waiting: tuple[Job, ...]
    states: Mapping[str, str]  # of the jobs before, by id

    def states_now(self) -> dict[str, str]:
        """Of all jobs; those that were not to be run stand where they stood."""
        return {**self.states, **{job.identity.id: job.state for job in self.waiting}}

    def headline(self) -> str:
        """`12 runs, 3 of them finished before, 1 failed before (...)`."""
        states = list(self.states.values())
        parts = [f"{len(self.jobs)} runs"]
        if finished := states.count("finished"):
            parts.append(f"{finished} of them finished before")
        if failed := len(self.jobs) - finished - len(self.waiting):
            parts.append(f"{failed} failed before (sweep.retry_failed=true runs them again)")
        return ", ".join(parts)


def prepare(context: HydraContext, master: DictConfig, overrides: Sequence[Sequence[str]]) -> Sweep | None:
    """The sweep that the overrides describe, checked as a whole; None where it was only to be shown (then keys and
    their types are checked, not what losses and tasks make of them).

    Raises:
        ConfigError: one of the runs cannot work; nothing was started.
    """
    from lossbench.app import plain

    block = OmegaConf.to_container(master.sweep, resolve=True) if master.get("sweep") else {}
    options = parse_sweep(block)  # type: ignore[arg-type]
    with _without_garbage_collection():
        jobs = plan(parse_all(Composer(context.config_loader, master, plain).compose(overrides)))
        now = states(jobs)
    waiting = to_run(jobs, now, options)
    if options.dry_run:  # without the checks that need torch: it answers in a second or two
        show_grid(jobs, waiting, now, Console())
        return None
    _check([job.config for job in waiting])
    _warn_of_twins([job.config for job in jobs] if waiting else [])
    try:
        expect(jobs, options.baseline)
    except OSError as error:
        raise ConfigError(f"{error.filename} cannot be written: {error.strerror}. Choose another paths.runs.") from None
    return Sweep(tuple(jobs), tuple(waiting), now)


def parse_all(runs: Sequence[Mapping[str, Any]]) -> list[RunConfig]:
    """`config.parse` of every run; a section that several runs share, as the same object, is parsed once."""
    known: dict[tuple[str, int], Any] = {}

    def parsed(run: Mapping[str, Any]) -> RunConfig:
        config = parse({key: known.get((key, id(value)), value) for key, value in run.items()})
        for key, value in run.items():
            if isinstance(value, dict):
                known.setdefault((key, id(value)), getattr(config, key))
        return config

    return [parsed(run) for run in runs]


def to_run(jobs: Sequence[Job], states: Mapping[str, str], options: SweepConfig) -> list[Job]:
    """Missing and interrupted runs, and failed ones where they are to be tried again."""
    done = {"finished"} if options.retry_failed else {"finished", "failed"}
    return [job for job in jobs if states[job.identity.id] not in done]


def report_failures(jobs: Sequence[Job], states: Mapping[str, str]) -> None:
    """Raise `SweepFailedError` that names the runs which did not finish, if there are any."""
    unfinished = [job for job in jobs if states[job.identity.id] != "finished"]
    if not unfinished:
        return
    found = {states[job.identity.id] for job in unfinished}
    advice = []
    if found - {"failed"}:
        advice.append("the same command again goes on with what was interrupted or is missing")
    if "failed" in found:
        advice.append("sweep.retry_failed=true runs failed ones again")
    names = ", ".join(job.identity.name for job in unfinished[:20])
    more = f" and {len(unfinished) - 20} more" if len(unfinished) > 20 else ""
    sentence = "; ".join(advice)
    raise SweepFailedError(
        f"{len(unfinished)} of {len(jobs)} runs did not finish: {names}{more}. {sentence[0].upper()}{sentence[1:]}."
    )


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """Thousands of configurations are made and kept: looking for garbage among them takes a quarter of the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _check(configs: Sequence[RunConfig]) -> None:
    distinct = {config.model_dump_json(exclude=NOT_CHECKED): config for config in configs}
    if distinct:
        from lossbench.run import check

        for config in distinct.values():
            check(config)


def _warn_of_twins(configs: Sequence[RunConfig]) -> None:
    one_each = {config.loss.name: config for config in configs}
    if len(one_each) > 1:
        from lossbench.training.objective import twins

        for sentence in twins(list(one_each.values())):
            print(f"warning: {sentence}", file=sys.stderr)
