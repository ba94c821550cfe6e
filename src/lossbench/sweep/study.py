"""A study's file: which combinations a sweep is made of.

sweep:
  grid: {loss: [cross_entropy, focal], model: [gpt2, opt_125m]}     # every combination of these ...
  seeds: [0, 1, 2]                                                  # ... with each of these seeds
  exclude: [{model: gpt2, loss: focal}]                             # but not these
  cells: [{when: {model: gpt2}, set: {optimizer.lr: 1.0e-4}}]       # with these keys set where they match
  baseline: cross_entropy                                           # what the report compares with
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field, ValidationError

from lossbench.config import Section
from lossbench.errors import ConfigError, nearest


class Cell(Section):
    """Keys that are set in the combinations that match `when`."""

    when: dict[str, Any]
    set: dict[str, Any]


class SweepConfig(Section):
    """The block `sweep` of a configuration; `hydra/sweeper=grid` expands it."""

    grid: dict[str, list[Any]] = Field(default_factory=dict)
    seeds: list[int] | None = None
    exclude: list[dict[str, Any]] = Field(default_factory=list)
    cells: list[Cell] = Field(default_factory=list)
    baseline: str | None = None
    dry_run: bool = False  # print what would run, and stop
    retry_failed: bool = False  # run again what failed


def parse_sweep(block: Mapping[str, Any] | None) -> SweepConfig:
    """The block `sweep`; a wrong key or value is one sentence."""
    try:
        return SweepConfig.model_validate(block or {})
    except ValidationError as error:
        fault = error.errors()[0]
        key = ".".join(["sweep", *map(str, fault["loc"])])
        if fault["type"] == "extra_forbidden":
            raise ConfigError(f"Unknown key {key}.{nearest(str(fault['loc'][-1]), _names(fault['loc']))}") from None
        if fault["type"] == "missing":
            raise ConfigError(f"{key} is missing: every entry of sweep.cells has `when` and `set`.") from None
        raise ConfigError(f"{key}={fault['input']!r} cannot be used: {fault['msg']}.") from None


def expand(sweep: SweepConfig, given: Mapping[str, Sequence[str]]) -> list[list[str]]:
    """The overrides of every run, in the order of the grid.

    Args:
        sweep: the study's file.
        given: the command line: key -> its values as they were typed; they replace an axis or a cell's value of the
            file. One value is a constant, several are an axis.

    Raises:
        ConfigError: a condition names a key that is no axis, or a value that it never takes; or nothing is left.
    """
    axes = {key: [as_text(value) for value in values] for key, values in sweep.grid.items()}
    if sweep.seeds is not None:
        axes["seed"] = [str(seed) for seed in sweep.seeds]
    if empty := [key for key, values in axes.items() if not values and key not in given]:
        raise ConfigError(f"sweep.grid.{empty[0]} has no values.")
    named = {key: list(values) for key, values in axes.items()}
    axes |= {key: list(values) for key, values in given.items()}
    for place, condition in _conditions(sweep):
        _check_condition(place, condition, {key: [*named.get(key, []), *axes[key]] for key in axes})
    combinations = []
    for values in itertools.product(*axes.values()):
        chosen = dict(zip(axes, values, strict=True))
        if any(_matches(condition, chosen) for condition in sweep.exclude):
            continue
        for cell in sweep.cells:
            if _matches(cell.when, chosen):
                chosen |= {key: as_text(value) for key, value in cell.set.items() if key.lstrip("+") not in given}
        combinations.append([f"{key}={value}" for key, value in chosen.items()])
    if not combinations:
        raise ConfigError("sweep.exclude leaves no combination to run.")
    return combinations


def as_text(value: Any) -> str:
    """A YAML value as Hydra's override grammar spells it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return f"[{','.join(map(as_text, value))}]"
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{key}:{as_text(inner)}" for key, inner in value.items()) + "}"
    text = str(value)
    if isinstance(value, str) and (not text or set(text) & set(" ,:=[]{}()'\"\\#")):
        escaped = text.replace("\\", "\\\\").replace("'", "\\'")
        return f"'{escaped}'"
    return text


def _conditions(sweep: SweepConfig) -> list[tuple[str, Mapping[str, Any]]]:
    excluded = [(f"sweep.exclude[{number}]", condition) for number, condition in enumerate(sweep.exclude)]
    return excluded + [(f"sweep.cells[{number}].when", cell.when) for number, cell in enumerate(sweep.cells)]


def _check_condition(place: str, condition: Mapping[str, Any], values: Mapping[str, Sequence[str]]) -> None:
    if not condition:
        raise ConfigError(f"{place} is empty, so it would match every run.")
    for key, wanted in condition.items():
        if key not in values:
            raise ConfigError(f"{place} names {key}, which is no axis of the sweep.{nearest(key, values)}")
        for value in _listed(wanted):
            if as_text(value) not in values[key]:
                raise ConfigError(f"{place}: {key} is never {as_text(value)}.{nearest(as_text(value), values[key])}")


def _matches(condition: Mapping[str, Any], chosen: Mapping[str, str]) -> bool:
    return all(chosen[key] in map(as_text, _listed(wanted)) for key, wanted in condition.items())


def _listed(wanted: Any) -> Sequence[Any]:
    return wanted if isinstance(wanted, list | tuple) else [wanted]


def _names(location: tuple[int | str, ...]) -> list[str]:
    return list(Cell.model_fields) if "cells" in location else list(SweepConfig.model_fields)
