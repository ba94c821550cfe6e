"""From a study's file, the command line and the options of `hydra/sweeper=optuna` to the searches that they mean."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from hydra.core.override_parser.types import Override
from hydra.utils import instantiate
from omegaconf import OmegaConf
from pydantic import ValidationError

from lossbench import resources
from lossbench.config import RunConfig, Section
from lossbench.errors import ConfigError, nearest
from lossbench.sweep.search_space import SearchSpace, check_given, dimensions, parse_search_space
from lossbench.sweep.study import SweepConfig, expand
from lossbench.sweep.tune import Budget, Compose, Target, Tuning, new_tuning


class Options(Section):
    """The block `hydra.sweeper` of `hydra/sweeper=optuna`."""

    n_trials: Any
    n_jobs: Any
    max_failure_rate: Any
    direction: str | None
    trial_seed: Any
    sampler: dict[str, Any]
    params: dict[str, Any]
    search_space: dict[str, Any]

    @property
    def budget(self) -> Budget:
        return Budget(self.n_trials, self.n_jobs, self.max_failure_rate, self.trial_seed)

    @property
    def space(self) -> SearchSpace:
        return parse_search_space(self.search_space)


@dataclass(frozen=True)
class Asked:
    """The command line: axes and constants, of which every combination is tuned by itself; seeds; ranges to search."""

    axes: Mapping[str, list[str]]
    seeds: list[str] | None
    ranges: Mapping[str, str]
    deletions: list[str]


def read_options(given: Mapping[str, Any], launcher_waits: bool | None = None) -> Options:
    """The options, completed by conf/hydra/sweeper/optuna.yaml.

    Raises:
        ConfigError: optuna is not installed, an option is unknown or cannot be used.
    """
    if importlib.util.find_spec("optuna") is None:
        raise ConfigError("hydra/sweeper=optuna needs optuna: pip install 'lossbench[optuna]'.")
    if launcher_waits is False:
        raise ConfigError(
            "hydra.launcher.wait=false cannot be used for tuning: which trial comes next depends on how those before "
            "it ended. Leave it out; the same command again goes on after Ctrl-C."
        )
    defaults = OmegaConf.load(resources.folder("conf") / "hydra" / "sweeper" / "optuna.yaml")
    stated = {key: value for key, value in given.items() if value is not None}
    merged: Any = OmegaConf.to_container(OmegaConf.merge(defaults, stated), resolve=True)
    merged = {key: value for key, value in merged.items() if key not in {"_target_", "_recursive_"}}
    if unknown := set(merged) - set(Options.model_fields):
        name = sorted(unknown)[0]
        kept = " Runs themselves are what is kept of trials." if name in {"storage", "study_name"} else ""
        raise ConfigError(f"Unknown key hydra.sweeper.{name}.{kept}{nearest(name, Options.model_fields)}")
    try:
        options = Options.model_validate(merged)
    except ValidationError as error:
        fault = error.errors()[0]
        key = ".".join(["hydra.sweeper", *map(str, fault["loc"])])
        raise ConfigError(f"{key}={fault['input']!r} cannot be used: {fault['msg']}.") from None
    if "seed" in options.sampler and options.sampler["seed"] is None:
        raise ConfigError("hydra.sweeper.sampler.seed=null: without a seed the same command would not find its trials.")
    return options


def split_arguments(overrides: Sequence[Override]) -> Asked:
    """What every override of the command line is; a later one replaces an earlier one with its key."""
    axes: dict[str, list[str]] = {}
    ranges: dict[str, str] = {}
    deletions: list[str] = []
    for override in overrides:
        key = override.get_key_element()
        if override.is_delete():
            deletions.append(str(override.input_line))
        elif key.startswith("sweep."):  # switches of the sweep itself
            continue
        elif override.is_interval_sweep():
            axes.pop(key, None)
            ranges[key] = str(override.input_line).partition("=")[2]
        elif override.is_sweep_override():
            ranges.pop(key, None)
            axes[key] = list(override.sweep_string_iterator())
        else:
            ranges.pop(key, None)
            axes[key] = [override.get_value_element_as_str()]
    return Asked(axes, axes.pop("seed", None), ranges, deletions)


def set_up(
    study: SweepConfig, asked: Asked, options: Options, compose: Compose
) -> tuple[list[Tuning], list[int | str]]:
    """The searches, one for every combination but seeds, and the seeds of the runs that are reported.

    Raises:
        ConfigError: a key, value or range cannot work; nothing was started.
    """
    search, budget = options.space, options.budget
    combinations = expand(study.model_copy(update={"seeds": None}), asked.axes)
    combinations = [[*combination, *asked.deletions] for combination in combinations]
    configs = compose(combinations)
    seeds: list[int | str] = [*(asked.seeds or study.seeds or [configs[0].seed])]
    if str(budget.seed) in map(str, seeds):
        raise ConfigError(
            f"hydra.sweeper.trial_seed={budget.seed} is one of the seeds that are reported, for which the settings "
            "would then have been chosen. Take another one."
        )
    check_given(configs, asked.ranges)
    new_sampler = _sampler(options.sampler)
    tunings = []
    for overrides, config in zip(combinations, configs, strict=True):
        space = [
            dimension
            for dimension in dimensions(config, search, asked.ranges)
            if dimension.key not in asked.axes or dimension.key in asked.ranges
        ]  # what the command line sets stays as it is
        if not space:
            raise ConfigError(f"There is nothing to tune of loss={config.loss.name}: every key is set.")
        tunings.append(new_tuning(overrides, config, space, _target(config, options.direction), new_sampler()))
    return tunings, seeds


def _target(config: RunConfig, direction: str | None) -> Target:
    """What the checkpoint is chosen by; refuses values of the training objective and of the test split."""
    from lossbench.data import task
    from lossbench.training.selection import criterion

    chosen = criterion(config, task.create(config.dataset).metrics)
    target = Target(chosen.name, chosen.higher_is_better)
    if direction not in (None, target.direction):
        raise ConfigError(
            f"hydra.sweeper.direction={direction}: {target.name} is to {target.direction}; leave it null."
        )
    return target


def _sampler(block: Mapping[str, Any]) -> Callable[[], Any]:
    try:
        instantiate(dict(block))
    except Exception as error:
        raise ConfigError(f"hydra.sweeper.sampler={dict(block)} cannot be used: {error}") from None
    return partial(instantiate, dict(block))
