"""From `loss.terms` in the configuration to the objective that is trained."""

from __future__ import annotations

from collections.abc import Sequence

from lossbench import losses
from lossbench.config import LossConfig, RunConfig
from lossbench.errors import ConfigError


def create_objective(config: LossConfig) -> losses.Mixture:
    """The weighted sum of the configured terms; an unknown loss or parameter raises `ConfigError`."""
    try:
        return losses.mixture({name: term.model_dump() for name, term in config.terms.items()})
    except (ValueError, TypeError) as error:
        raise ConfigError(f"loss={config.name}: {error}") from error


def twins(configs: Sequence[RunConfig]) -> list[str]:
    """Sentences about losses of one sweep that have the same gradient, so that they are not two methods."""
    objectives = {config.loss.name: create_objective(config.loss) for config in configs}
    return losses.warn_of_twins(objectives)
