"""What losses need beyond logits and labels, found from the model."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from lossbench.errors import ConfigError
from lossbench.losses import Mixture
from lossbench.models.load import head_weight, load_head

PROVIDED = ("embedding",)


class Context:
    """Binds once what stays fixed during training; `now()` gives what changes from step to step."""

    def __init__(self, objective: Mixture, model: Any) -> None:
        self._adaptive_head: Any = None
        losses: dict[str, Any] = dict(objective.losses.items())
        for name, loss in losses.items():
            if missing := [need for need in loss.needs if need not in PROVIDED]:
                raise ConfigError(f"loss {name} needs {', '.join(missing)}, which training cannot provide.")
            if "embedding" not in loss.needs:
                continue
            head = model.get_output_embeddings()
            if loss.cost_embedding == "adaptive":
                self._adaptive_head = head
            elif loss.cost_embedding == "fixed":
                loss.bind(embedding=head_weight(head).clone())
            else:
                loss.bind(embedding=_head_of_another(loss.cost_embedding, head_weight(head).shape[0]))

    def now(self) -> dict[str, Any]:
        """Context of the present step, as keyword arguments of a loss."""
        return {} if self._adaptive_head is None else {"embedding": head_weight(self._adaptive_head)}


def _head_of_another(path: str, vocabulary: int) -> Tensor:
    weight = load_head(path)
    if weight.shape[0] != vocabulary:
        raise ConfigError(
            f"cost_embedding={path!r} has {weight.shape[0]} rows, but the model has {vocabulary} tokens: "
            "take a model with the same vocabulary."
        )
    return weight
