"""Losses whose weight or shape follows the confidence of the whole prediction, token by token."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..base import RowLoss, Statistics, StatisticsLoss
from ..batch import Batch
from ..numerics import stop_gradient, target_log_prob
from ..parameters import choice, integer, number
from ..registry import register


@register("deft")
class DEFT(StatisticsLoss):
    """DEFT: generalized cross-entropy whose exponent follows the model's confidence, token by token.

        f = (1 - p_t^a) / (a + 1e-6),  a = sg(sum_j p_j^2)                                         variant deft
        f = (1 - p_t^a) / (a + 1e-8),  a = clip(phi + (1 - phi) b, 0.001, 1),  d = 1 - sg(p_t) + 1e-8,
            b = (1 - d) / (1 + d + 1e-8),  phi = half the mean of sg(p_t) over the valid tokens     variant cayley
        gate = p_t^a, nearly

    Args:
        variant: deft or cayley; cayley uses the batch mean of p_t (scope local+stats).

    Hazards:
        - a to 0 is cross-entropy, a = 1 is mae: on confident rows the gate of an improbable target vanishes.
    """

    paper = "Wang et al. 2026, DEFT, https://arxiv.org/abs/2602.11424"
    statistics = ("sum_p2",)
    bounds = (0.0, math.inf)

    def __init__(self, variant: str = "deft") -> None:
        super().__init__()
        self.variant = choice("variant", variant, ("deft", "cayley"))
        if self.variant == "cayley":
            self.scope = "local+stats"

    def value(self, statistics: Statistics, batch: Batch) -> Tensor:
        log_p = statistics.log_p
        if self.variant == "deft":
            a = stop_gradient(statistics.sum_p2)
            return -torch.expm1(a * log_p) / (a + 1e-6)
        p = stop_gradient(log_p).exp()
        d = 1 - p + 1e-8
        floor = 0.5 * p.mean()
        a = (floor + (1 - floor) * (1 - d) / (1 + d + 1e-8)).clamp(0.001, 1)
        return -torch.expm1(a * log_p) / (a + 1e-8)


@register("eaft")
class EAFT(RowLoss):
    """Entropy-adaptive fine-tuning: cross-entropy weighted by the entropy of the top logits.

        f = -sg(w) log p_t,   w = (H_k / normalizer)^alpha,  H_k the entropy of the top_k logits renormalised
        gate = w

    Args:
        alpha: exponent, >= 0; 0 is cross-entropy.
        top_k: number of largest logits, >= 1; clipped to the vocabulary.
        normalizer: entropy that gives weight 1, > 0; 3.0 is about log 20.

    Hazards:
        - The weight tends to 0 for confident rows whatever the label: confident mistakes are not mended.

    Official code:
        - LLaMA-Factory's topk(20) crashes for V < 20; axolotl's version omits the division by 3.
    """

    paper = "Diao et al. 2026, EAFT, https://arxiv.org/abs/2601.02151"
    cost = "that of cross-entropy and a top-k of each row"
    bounds = (0.0, math.inf)

    def __init__(self, alpha: float = 1.0, top_k: int = 20, normalizer: float = 3.0) -> None:
        super().__init__()
        self.alpha = number("alpha", alpha, at_least=0)
        self.top_k = integer("top_k", top_k, at_least=1)
        self.normalizer = number("normalizer", normalizer, above=0)

    def value(self, rows: Tensor, batch: Batch) -> Tensor:
        top = stop_gradient(rows).topk(min(self.top_k, rows.shape[1]), dim=1).values.log_softmax(1)
        entropy = -(top.exp() * top).sum(1)
        return -((entropy / self.normalizer) ** self.alpha) * target_log_prob(rows, batch.labels)


@register("mile")
class MiLe(StatisticsLoss):
    """MiLe: tokens that are hard to predict (high entropy) weigh more, at constant mean weight.

        f_i = w_i (-log p_t) / mean(w),   w_i = sg(1 + H_i)^gamma, the mean over valid tokens

    Args:
        gamma: exponent; 0 is cross-entropy.

    Hazards:
        - The mean weight is that of the micro-batch: accumulation and sharding change it slightly.

    Official code:
        - Averages the weight over all rows including ignored ones, clamps p at 1e-8 (adds 0.024 nats to H at V = 128k),
          and calls wandb and torch.distributed inside the loss; the mean of 1/mean(w) over ranks is not reproduced.
    """

    paper = "Su et al. 2024, MiLe Loss, https://arxiv.org/abs/2310.19531"
    scope = "local+stats"
    statistics = ("lse", "sum_pz")
    bounds = (0.0, math.inf)

    def __init__(self, gamma: float = 1.0) -> None:
        super().__init__()
        self.gamma = number("gamma", gamma)

    def value(self, statistics: Statistics, batch: Batch) -> Tensor:
        weight = (1 + stop_gradient(statistics.entropy)) ** self.gamma
        return -weight / weight.mean() * statistics.log_p
