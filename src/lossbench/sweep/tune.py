"""Tuning on equal terms: the same number of trials for every loss, judged on validation alone.

A trial is a run like any other, in the study `<study>_trials`. Nothing else is kept: the sampler is seeded and told the
results in the order of the trials, so that the same command again asks for the same runs, finds those that finished,
and goes on with the rest. Its first trial is the loss's default setting.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from lossbench.config import RunConfig
from lossbench.errors import ConfigError, LossbenchError
from lossbench.identity import reading_once
from lossbench.sweep.plan import Job, plan
from lossbench.sweep.search_space import Dimension
from lossbench.sweep.start import SweepFailedError
from lossbench.tracking.files import write_json
from lossbench.tracking.record import read_result

if TYPE_CHECKING:
    import optuna

FILE = "tuning.json"
SUFFIX = "_trials"  # of the study that the trials belong to
DECIDED = {"finished", "failed"}

Overrides = list[str]
Compose = Callable[[Sequence[Overrides]], list[RunConfig]]
Launch = Callable[[Sequence[Overrides]], None]  # returns when all have ended; `SweepFailedError` if some did not finish


@dataclass(frozen=True)
class Budget:
    """How much is tried: the same for every loss."""

    n_trials: int  # of a loss, its default setting included
    n_jobs: int = 1  # trials of one loss at a time
    max_failure_rate: float = 0.5  # of all trials; beyond it tuning ends
    seed: int = 1000  # of the trials

    def __post_init__(self) -> None:
        for name, value, least in (("n_trials", self.n_trials, 2), ("n_jobs", self.n_jobs, 1)):
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ConfigError(f"hydra.sweeper.{name}={value!r} must be a whole number of at least {least}.")
        rate = self.max_failure_rate
        if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 <= rate <= 1:
            raise ConfigError(f"hydra.sweeper.max_failure_rate={rate!r} must be a number from 0 to 1.")
        if isinstance(self.seed, bool) or not isinstance(self.seed, int) or not 0 <= self.seed < 2**32:
            raise ConfigError(f"hydra.sweeper.trial_seed={self.seed!r} must be a whole number of at least 0.")


@dataclass(frozen=True)
class Target:
    """What trials are judged by: the value of `trainer.select_by` at the checkpoint that it chose, on validation."""

    name: str
    higher_is_better: bool

    @property
    def direction(self) -> Literal["maximize", "minimize"]:
        """As optuna says it."""
        return "maximize" if self.higher_is_better else "minimize"

    @property
    def worst(self) -> float:
        """What a trial that failed is worth."""
        return -math.inf if self.higher_is_better else math.inf

    def value(self, folder: Path) -> float:
        """Of a finished run. Its metrics, those of the test split among them, are not looked at."""
        checkpoint = (read_result(folder) or {}).get("checkpoint") or {}
        if checkpoint.get("criterion") != self.name:
            raise LossbenchError(
                f"{folder}: its checkpoint was chosen by {checkpoint.get('criterion')}, not {self.name}."
            )
        value = checkpoint.get("value")
        return float(value) if isinstance(value, int | float) and math.isfinite(value) else self.worst


@dataclass
class Trial:
    """One setting of a loss. `points` is empty for the default setting."""

    number: int
    points: Mapping[str, Any]
    settings: Overrides  # of what is searched alone
    job: Job
    asked: optuna.Trial | None = None
    state: str = "missing"
    value: float = math.nan


@dataclass
class Tuning:
    """The search for one loss on one model and dataset."""

    overrides: Overrides  # of its default setting, without a seed
    config: RunConfig
    space: Sequence[Dimension]
    target: Target
    study: optuna.Study
    trials: list[Trial] = field(default_factory=list)

    @property
    def distributions(self) -> dict[str, Any]:
        """The space as optuna has it."""
        return {dimension.key: _distribution(dimension) for dimension in self.space}

    @property
    def name(self) -> str:
        """`focal on tiny and arithmetic`."""
        return f"{self.config.loss.name} on {self.config.model.name} and {self.config.dataset.name}"

    @property
    def failed(self) -> int:
        """Trials that failed; each counts as one of the budget."""
        return sum(trial.state == "failed" for trial in self.trials)

    @property
    def best(self) -> Trial:
        """The finished trial with the best value; of equal ones the first."""
        finished = [trial for trial in self.trials if trial.state == "finished" and math.isfinite(trial.value)]
        if not finished:
            raise LossbenchError(
                f"No trial of {self.name} finished with a finite {self.target.name}; it has no setting."
            )
        sign = -1 if self.target.higher_is_better else 1
        return min(finished, key=lambda trial: (sign * trial.value, trial.number))


def new_tuning(
    overrides: Overrides,
    config: RunConfig,
    space: Sequence[Dimension],
    target: Target,
    sampler: optuna.samplers.BaseSampler,
) -> Tuning:
    """A search that has not begun, with a sampler of its own: what one loss gets changes nothing for another."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return Tuning(overrides, config, space, target, optuna.create_study(direction=target.direction, sampler=sampler))


def tune(
    tunings: Sequence[Tuning], budget: Budget, compose: Compose, launch: Launch | None, retry_failed: bool = False
) -> bool:
    """Bring every search to `budget.n_trials` trials, all searches side by side.

    Args:
        tunings: the searches; their trials are filled in.
        compose: overrides -> configurations.
        launch: starts runs; None: go only as far as runs have ended before.
        retry_failed: launch trials that failed once more.

    Returns:
        Whether all trials are there (always, where `launch` is given).

    Raises:
        SweepFailedError: a trial was interrupted; the same command goes on.
        LossbenchError: more trials failed than `budget.max_failure_rate` allows.
    """
    while any(len(tuning.trials) < budget.n_trials for tuning in tunings):
        asked = [(tuning, trial) for tuning in tunings for trial in _ask(tuning, budget, compose)]
        states = [trial.job.state for _, trial in asked]
        is_done = all(state == "finished" or (state == "failed" and not retry_failed) for state in states)
        if not is_done and launch is None:
            return False
        if not is_done and launch is not None:
            try:
                launch([_overrides(tuning, trial, budget) for tuning, trial in asked])
            except SweepFailedError:
                _refuse_undecided([trial for _, trial in asked])
        _refuse_undecided([trial for _, trial in asked])
        for tuning, trial in asked:
            _tell(tuning, trial)
        if launch is not None:
            _refuse_failures(tunings, budget)
    return True


def _ask(tuning: Tuning, budget: Budget, compose: Compose) -> list[Trial]:
    """The next trials of one search: the default setting alone, then as many as may run at a time."""
    missing = budget.n_trials - len(tuning.trials)
    wanted = 1 if not tuning.trials else min(budget.n_jobs, missing)
    if missing <= 0:
        return []
    chosen: list[tuple[Mapping[str, Any], optuna.Trial | None]] = [({}, None)]
    if tuning.trials:
        asked = [tuning.study.ask(fixed_distributions=tuning.distributions) for _ in range(wanted)]
        chosen = [(one.params, one) for one in asked]
    trials = []
    for number, (points, one) in enumerate(chosen, start=len(tuning.trials)):
        settings = [dimension.override(points[dimension.key]) for dimension in tuning.space if points]
        [config] = compose([[*tuning.overrides, *settings, *_of_a_trial(tuning.config, budget)]])
        with reading_once():
            [job] = plan([config])
        trials.append(Trial(number, points, settings, job, one))
    return trials


def _tell(tuning: Tuning, trial: Trial) -> None:
    import optuna

    trial.state = trial.job.state
    trial.value = tuning.target.value(trial.job.folder) if trial.state == "finished" else tuning.target.worst
    tuning.trials.append(trial)
    if trial.asked is not None:
        tuning.study.tell(trial.asked, trial.value)
    elif all(dimension.contains(dimension.start) for dimension in tuning.space):
        start = {dimension.key: dimension.start for dimension in tuning.space}
        told = optuna.trial.create_trial(params=start, distributions=tuning.distributions, value=trial.value)
        tuning.study.add_trial(told)


def _overrides(tuning: Tuning, trial: Trial, budget: Budget) -> Overrides:
    return [*tuning.overrides, *trial.settings, *_of_a_trial(tuning.config, budget)]


def _of_a_trial(config: RunConfig, budget: Budget) -> Overrides:
    """What every trial has: its study, the common seed, and no look at the test split."""
    limit = config.evaluation.validation_limit
    return [
        f"study={config.study}{SUFFIX}",
        f"seed={budget.seed}",
        "evaluation.split=validation",
        f"evaluation.limit={'null' if limit is None else limit}",
        "evaluation.generate=false",  # validation while training measures what trainer.select_by needs
        "evaluation.samples=0",
        "evaluation.rolling=false",
        "evaluation.mauve=null",
        "evaluation.memorisation=null",
    ]


def _refuse_undecided(trials: Sequence[Trial]) -> None:
    names = [trial.job.identity.name for trial in trials if trial.job.state not in DECIDED]
    if names:
        raise SweepFailedError(
            f"{len(names)} trials did not come to an end: {', '.join(names[:20])}. The same command again goes on with "
            "them; nothing is chosen from a part of the trials."
        )


def _refuse_failures(tunings: Sequence[Tuning], budget: Budget) -> None:
    failed = [trial for tuning in tunings for trial in tuning.trials if trial.state == "failed"]
    total = sum(len(tuning.trials) for tuning in tunings)
    if failed and len(failed) / total > budget.max_failure_rate:
        raise LossbenchError(
            f"{len(failed)} of {total} trials failed, which is more than hydra.sweeper.max_failure_rate="
            f"{budget.max_failure_rate} allows. The first of them, {failed[0].job.folder}: {failed[0].job.reason}"
        )


def _distribution(dimension: Dimension) -> Any:
    import optuna

    if dimension.choices:
        return optuna.distributions.CategoricalDistribution(dimension.choices)
    if dimension.is_whole:
        return optuna.distributions.IntDistribution(int(dimension.low), int(dimension.high), log=dimension.is_log)
    return optuna.distributions.FloatDistribution(dimension.low, dimension.high, log=dimension.is_log)


def final_overrides(tuning: Tuning, seeds: Sequence[int | str]) -> tuple[list[Overrides], list[Overrides]]:
    """(default setting, best setting) with every seed; the same runs where no trial was better than the default."""
    default = [[*tuning.overrides, f"seed={seed}"] for seed in seeds]
    best = [[*tuning.overrides, *tuning.best.settings, f"seed={seed}"] for seed in seeds]
    return default, best


def tags(tunings: Sequence[Tuning], seeds: Sequence[int | str], compose: Compose) -> tuple[list[Job], dict[str, str]]:
    """All runs that are reported, and for the report what the tuned ones are: id -> `tuned:8` (the best of 8 trials) or
    `untuned-is-best:8` (the default setting is)."""
    jobs: list[Job] = []
    named: dict[str, str] = {}
    for tuning in tunings:
        default, best = final_overrides(tuning, seeds)
        tag = "tuned" if tuning.best.settings else "untuned-is-best"
        with reading_once():
            jobs += plan(compose(default))
            tuned = plan(compose(best))
        jobs += tuned if tuning.best.settings else []
        named |= {job.identity.id: f"{tag}:{len(tuning.trials)}" for job in tuned}
    return jobs, named


def write_tags(study: Path, jobs: Sequence[Job], tagged: Mapping[str, str]) -> None:
    """Note in the study's sweep.json which of these jobs tuning led to; `expect` has put all of them there."""
    ids = {job.identity.id for job in jobs}
    file = study / "sweep.json"
    content = json.loads(file.read_text(encoding="utf-8"))
    for run in content["runs"]:
        if run["id"] in ids:
            run.pop("tags", None)
            run |= {"tags": [tagged[run["id"]]]} if run["id"] in tagged else {}
    write_json(file, content)


def write_summary(study: Path, tunings: Sequence[Tuning], budget: Budget) -> None:
    """tuning.json: every trial of every loss, and which one was chosen."""
    searches = [
        {
            "loss": tuning.config.loss.name,
            "model": tuning.config.model.name,
            "dataset": tuning.config.dataset.name,
            "metric": tuning.target.name,
            "direction": tuning.target.direction,
            "space": {dimension.key: _shown(dimension) for dimension in tuning.space},
            "n_trials": len(tuning.trials),
            "n_failed": tuning.failed,
            "best": tuning.best.number,
            "trials": [
                {
                    "number": trial.number,
                    "id": trial.job.identity.id,
                    "state": trial.state,
                    "value": trial.value if math.isfinite(trial.value) else None,
                    "settings": trial.settings,
                }
                for trial in tuning.trials
            ],
        }
        for tuning in tunings
    ]
    write_json(study / FILE, {"schema": 1, "seed": budget.seed, "searches": searches})


def _shown(dimension: Dimension) -> dict[str, Any]:
    bounds = {"choices": list(dimension.choices)} if dimension.choices else {
        "low": dimension.low * (dimension.times or 1), "high": dimension.high * (dimension.times or 1),
        "log": dimension.is_log,
    }  # fmt: skip
    return {"default": dimension.default, **bounds}
