"""Value and gate of a loss against the probability of the target: what `lossbench losses plot` draws."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from .errors import BadInput


def curve(loss: nn.Module, probability: Tensor, vocabulary: int = 1000) -> tuple[Tensor, Tensor]:
    """Value and gate of single tokens with these target probabilities (n,) in (0, 1), in float64.

    The other V - 1 tokens share the rest of the probability equally. The gate is the factor by which the gradient of
    the target's logit differs from that of cross-entropy: dL/dz_t = gate (p_t - 1). Every point is a batch of its own;
    a loss that needs context raises `MissingContext`, and the loss itself is left untouched.
    """
    if not bool(((probability > 0) & (probability < 1)).all()):
        raise BadInput(f"probabilities must be strictly between 0 and 1, got {probability.tolist()}.")
    loss = copy.deepcopy(loss).eval()
    values, gates = [], []
    for p in probability.to(torch.float64).tolist():
        logits = torch.full((1, vocabulary), (1 - p) / (vocabulary - 1), dtype=torch.float64).log()
        logits[0, 0] = torch.tensor(p, dtype=torch.float64).log()
        logits.requires_grad_()
        value = loss(logits, torch.zeros(1, dtype=torch.int64))
        (gradient,) = torch.autograd.grad(value, logits)
        values.append(value.detach())
        gates.append(-gradient[0, 0] / (1 - p))
    return torch.stack(values), torch.stack(gates)
