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


def batch_notes(objective: losses.Mixture, batch_size: int) -> list[str]:
    """A sentence for every term that is not a sum over tokens alone: over what it is computed in training.

    Such a term is one of each forward pass, so its value depends on `trainer.batch_size`, and the step's is the mean of
    the forward passes' weighted by their valid tokens. It does not depend on the number of devices.
    """
    found = []
    for name, loss in objective.losses.items():
        scope = getattr(loss, "scope", "local")
        if scope == "local":
            continue
        what = {
            "sequence": "weighs sequences",
            "local+stats": "uses statistics of the batch",
        }.get(scope, "is one number for a whole batch")
        found.append(
            f"{name} {what}: it is computed over micro-batches of at most {batch_size} examples (trainer.batch_size), "
            f"and averaged over those of an optimizer step by their tokens."
        )
    return found
