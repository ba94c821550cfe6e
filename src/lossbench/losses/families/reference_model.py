"""Losses that keep the model near a frozen reference or an earlier snapshot of itself."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..base import RowLoss, TargetLoss
from ..batch import Batch
from ..numerics import pick, stop_gradient
from ..parameters import integer, number
from ..registry import register


@register("asft")
class ASFT(RowLoss):
    """Anchored SFT: dft plus the divergence from a frozen reference model.

        f = -sg(p_t) log p_t + kl_weight KL(p_ref || p)
        gradient p_t (p - Y) + kl_weight (p - p_ref)

    Args:
        kl_weight: >= 0; 0 is dft. 0.1 is the authors' class default, 0.05 their README's command.

    Hazards:
        - Needs a second forward pass of the reference (with LoRA: the adapters switched off).
        - The value of its first part is not monotone in p_t, see dft.
    """

    paper = "Zhu et al. 2025, Anchored Supervised Fine-Tuning, https://arxiv.org/abs/2509.23753"
    needs = ("ref_logits",)
    cost = "that of cross-entropy, a second row of logits, and the reference's forward pass"
    bounds = (0.0, math.inf)

    def __init__(self, kl_weight: float = 0.1) -> None:
        super().__init__()
        self.kl_weight = number("kl_weight", kl_weight, at_least=0)

    def value(self, rows: Tensor, batch: Batch) -> Tensor:
        log_p = rows.log_softmax(1)
        log_ref = batch.context["ref_logits"].detach().to(rows.dtype).log_softmax(1)
        divergence = (log_ref.exp() * (log_ref - log_p)).sum(1)
        target = pick(log_p, batch.labels)
        return -stop_gradient(target).exp() * target + self.kl_weight * divergence


@register("psft")
class PSFT(TargetLoss):
    """Proximal SFT: the clipped ratio to a snapshot's probability, as in PPO with advantage 1.

        r = exp(clamp(log p_t - log p_old, -20, 20)),   f = max(-r, -clip(r, 1 - clip_low, 1 + clip_high))
        gate = r 1[r <= 1 + clip_high]

    Args:
        clip_low: in [0, 1]; with advantage 1 it never acts.
        clip_high: >= 0.
        snapshot_every: optimizer steps between two renewals of the snapshot by the trainer, >= 1.

    Hazards:
        - The value is -1 at the snapshot and never below -(1 + clip_high): it is no log-likelihood.
        - At the snapshot (r = 1) the gradient is that of cross-entropy. The snapshot must be renewed or training stops.
    """

    paper = "Zhu et al. 2025, Proximal Supervised Fine-Tuning, https://arxiv.org/abs/2508.17784"
    needs = ("old_log_probs",)

    def __init__(self, clip_low: float = 0.2, clip_high: float = 0.28, snapshot_every: int = 8) -> None:
        super().__init__()
        self.snapshot_every = integer("snapshot_every", snapshot_every, at_least=1)
        self.clip_low = number("clip_low", clip_low, at_least=0, at_most=1)
        self.clip_high = number("clip_high", clip_high, at_least=0)
        self.bounds = (-1 - self.clip_high, 0.0)

    def value(self, log_p: Tensor, batch: Batch) -> Tensor:
        old = batch.context["old_log_probs"].detach().to(log_p.dtype)
        ratio = torch.exp((log_p - old).clamp(-20, 20))
        return torch.maximum(-ratio, -ratio.clamp(1 - self.clip_low, 1 + self.clip_high))
