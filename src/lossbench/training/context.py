"""What losses need beyond logits and labels, found from the model."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from lossbench.errors import ConfigError
from lossbench.losses import Mixture
from lossbench.models.load import load_head

PROVIDED = ("embedding",)


class Context:
    """Binds once what stays fixed during training; `now()` gives what changes from step to step."""

    def __init__(self, objective: Mixture, model: PreTrainedModel) -> None:
        self._head: nn.Module | None = None
        for name, loss in objective.losses.items():
            if missing := [need for need in loss.needs if need not in PROVIDED]:
                raise ConfigError(f"loss {name} needs {', '.join(missing)}, which training cannot provide.")
            if "embedding" not in loss.needs:
                continue
            if loss.cost_embedding == "adaptive":
                self._head = model.get_output_embeddings()
            elif loss.cost_embedding == "fixed":
                loss.bind(embedding=head_weight(model.get_output_embeddings()).clone())
            else:
                loss.bind(embedding=_head_of_another(loss.cost_embedding, model))

    def now(self) -> dict[str, Any]:
        """Context of the present step, as keyword arguments of a loss."""
        return {} if self._head is None else {"embedding": head_weight(self._head)}


def head_weight(head: nn.Module) -> Tensor:
    """(V, H) weight that the LM head multiplies with, LoRA's update included, detached."""
    weight = head.weight.detach()
    if hasattr(head, "get_delta_weight"):  # LoRA's linear layer
        weight = weight + sum(head.get_delta_weight(adapter).detach() for adapter in head.active_adapters)
    return weight


def _head_of_another(path: str, model: PreTrainedModel) -> Tensor:
    weight = load_head(path)
    vocabulary = model.get_output_embeddings().weight.shape[0]
    if weight.shape[0] != vocabulary:
        raise ConfigError(
            f"cost_embedding={path!r} has {weight.shape[0]} rows, but the model has {vocabulary} tokens: "
            "take a model with the same vocabulary."
        )
    return weight.to(torch.float32)
