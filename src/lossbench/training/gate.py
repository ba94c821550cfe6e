"""How much of cross-entropy's gradient a loss lets through."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from lossbench.data.batches import IGNORED
from lossbench.losses import Mixture
from lossbench.losses.base import TargetLoss


def has_gate(mixture: Mixture) -> bool:
    """Whether all terms are functions of log p_t alone, whose gradient is cross-entropy's times one number a token."""
    return all(isinstance(loss, TargetLoss) for loss in mixture.losses.values())


def gate_sum(
    mixture: Mixture,
    log_p_of: Callable[[Tensor], Tensor],
    labels: Mapping[str, Tensor],
    vocabulary: int,
    step: int,
    context: Mapping[str, Any],
) -> Tensor:
    """Sum over the answer's tokens of |gate|, gate = -sum_k w_k d f_k / d log p_t; 1 a token for cross-entropy.

    A mean of 0.3 says that the objective's gradient with regard to log p_t is, token by token, 0.3 of cross-entropy's.

    Args:
        mixture: terms of which each is a `TargetLoss` (`has_gate`).
        log_p_of: (B, T) labels -> (B, T) log p of the label, anything at ignored positions.
        labels: (B, T) by scope.
        step, context: as the mixture gets them in training. Losses with a state do not move it here.
    """
    scope = "sequence" if "sequence" in mixture.scopes else "answer"
    with torch.no_grad():
        log_p = log_p_of(labels[scope]).reshape(-1)
    gates = torch.zeros_like(log_p)
    for name, loss in mixture.losses.items():
        weight = mixture.weight(name, step)
        batch = loss.make_batch(labels[mixture.settings[name].scope], vocabulary, context)  # type: ignore[operator]
        if weight == 0 or batch.n == 0:
            continue
        leaf = log_p[batch.index].requires_grad_()
        mode = loss.training
        loss.training = False
        try:
            with torch.enable_grad():
                (slope,) = torch.autograd.grad(loss.of_log_p(leaf, batch).sum(), leaf)  # type: ignore[operator]
        finally:
            loss.training = mode
        gates.index_add_(0, batch.index, -weight * slope)
    return gates[labels["answer"].reshape(-1) != IGNORED].abs().sum()
