"""What tuning may change of a loss: its own parameters, its share in a mixture, and the learning rate.

Ranges are written as Hydra's sweeps are: `interval(0, 5)`, `tag(log, interval(1e-5, 1e-2))`, `choice(a, b)`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Transformer
from hydra.errors import HydraException
from pydantic import Field, ValidationError

from lossbench.config import RunConfig, Section
from lossbench.errors import ConfigError, nearest
from lossbench.sweep.study import as_text

TERMS = "loss.terms."
DIGITS = 4  # significant ones of a number that is tried


class SearchSpace(Section):
    """The block `hydra.sweeper.search_space`."""

    learning_rate: str | None = None  # times optimizer.lr
    mixture_weight: str | None = None  # times the weight of a term beside cross-entropy
    terms: dict[str, dict[str, str]] = Field(default_factory=dict)  # term -> parameter -> range


@dataclass(frozen=True)
class Dimension:
    """One key and the values that it may have: a range of numbers, or `choices`.

    A range may be one of multiples: then `times` is what a number of it is multiplied by, the default value itself.
    """

    key: str
    default: Any  # its value in the loss's own setting
    low: float = -math.inf
    high: float = math.inf
    is_log: bool = False
    is_whole: bool = False
    choices: tuple[Any, ...] = ()
    times: float | None = None

    @property
    def start(self) -> Any:
        """The default as a point of the range."""
        return 1.0 if self.times is not None else self.default

    def contains(self, point: Any) -> bool:
        """Whether a point lies in the range."""
        if self.choices:
            return point in self.choices
        is_number = isinstance(point, int | float) and not isinstance(point, bool)
        return is_number and self.low <= point <= self.high and (not self.is_whole or point == int(point))

    def override(self, point: Any) -> str:
        """`key=value` of a point of the range."""
        return f"{self.key}={as_text(self.value(point))}"

    def value(self, point: Any) -> Any:
        """What the key is set to; floats are rounded to a few digits, within the range."""
        if self.choices or self.is_whole:
            return point
        scale = 1.0 if self.times is None else self.times
        return min(max(float(f"{point * scale:.{DIGITS}g}"), self.low * scale), self.high * scale)


def parse_search_space(block: Mapping[str, Any] | None) -> SearchSpace:
    """The block `hydra.sweeper.search_space`; a wrong key or range is one sentence."""
    try:
        found = SearchSpace.model_validate(block or {})
    except ValidationError as error:
        fault = error.errors()[0]
        key = ".".join(["hydra.sweeper.search_space", *map(str, fault["loc"])])
        raise ConfigError(f"{key}={fault['input']!r} cannot be used: {fault['msg']}.") from None
    named = {"learning_rate": found.learning_rate, "mixture_weight": found.mixture_weight}
    ranges = {key: text for key, text in named.items() if text is not None}
    for key, text in ranges.items():
        if _range(key, text).choices or _range(key, text).low <= 0:
            raise ConfigError(f"hydra.sweeper.search_space.{key}={text} must be an interval of positive multiples.")
    for term, parameters in found.terms.items():
        for parameter, text in parameters.items():
            _range(f"terms.{term}.{parameter}", text)
    return found


def dimensions(config: RunConfig, search: SearchSpace, given: Mapping[str, str] | None = None) -> list[Dimension]:
    """The search space of one loss.

    Args:
        config: the loss's default setting.
        search: what is searched for every loss.
        given: key -> range of the command line; it replaces what `search` says of that key. A parameter of a term
            belongs to the losses that have the term.

    Raises:
        ConfigError: a given key does not exist.
    """
    found: dict[str, Dimension] = {}
    if search.learning_rate is not None:
        found["optimizer.lr"] = _multiples("optimizer.lr", search.learning_rate, config.optimizer.lr)
    beside = len(config.loss.terms) > 1 and "cross_entropy" in config.loss.terms
    for name, term in config.loss.terms.items():
        weight = term.weight
        if search.mixture_weight and beside and name != "cross_entropy" and isinstance(weight, int | float) and weight:
            key = f"{TERMS}{name}.weight"
            found[key] = _multiples(key, search.mixture_weight, float(weight))
        for parameter, text in search.terms.get(str(term.options.get("loss", name)), {}).items():
            default = term.options.get(parameter)
            if default is not None:
                key = f"{TERMS}{name}.{parameter}"
                found[key] = replace(_range(key, text), default=default)
    for key, text in (given or {}).items():
        if key.startswith(TERMS) and key.split(".")[2] not in config.loss.terms:
            continue
        found[key] = replace(_range(key, text), default=_lookup(config, key))
    return list(found.values())


def check_given(configs: Iterable[RunConfig], given: Iterable[str]) -> None:
    """Refuse a range of the command line for a term that no loss has: it would quietly do nothing."""
    terms = {name for config in configs for name in config.loss.terms}
    for key in given:
        if key.startswith(TERMS) and key.split(".")[2] not in terms:
            raise ConfigError(f"{key}: none of the losses has this term.{nearest(key.split('.')[2], terms)}")


def _multiples(key: str, text: str, default: float) -> Dimension:
    return replace(_range(key, text), default=default, times=default, is_whole=False)


@cache
def _range(key: str, text: str) -> Dimension:
    """The range that a text describes, of a key whose default is not known yet."""
    try:
        override = OverridesParser.create().parse_override(f"x={text}")
    except HydraException:
        override = None
    if override is None or not (override.is_interval_sweep() or override.is_choice_sweep()):
        raise ConfigError(f"{key}={text} is no range to search: write interval(0, 1), tag(log, interval(1e-4, 1)) or "
                          "choice(a, b).")  # fmt: skip
    sweep: Any = override.value()
    if override.is_choice_sweep():
        return Dimension(key, None, choices=tuple(override.sweep_iterator(transformer=Transformer.encode)))
    low, high, is_log = sweep.start, sweep.end, "log" in sweep.tags
    if not low < high or (is_log and low <= 0):
        raise ConfigError(f"{key}={text} is empty{', or not of positive numbers' if is_log else ''}.")
    is_whole = isinstance(low, int) and isinstance(high, int)
    return Dimension(key, None, low, high, is_log, is_whole)


def _lookup(config: RunConfig, key: str) -> Any:
    value: Any = config.model_dump(mode="json")
    for part in key.split("."):
        if not isinstance(value, dict) or part not in value:
            raise ConfigError(f"Unknown key {key}: it cannot be searched.")
        value = value[part]
    return value
