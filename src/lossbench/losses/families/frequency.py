"""Losses that know how often each token occurs in the training split."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..base import RowLoss, TargetLoss
from ..batch import Batch
from ..errors import BadInput
from ..numerics import target_log_prob
from ..parameters import number
from ..registry import register


def _counts(name: str, value: Tensor) -> Tensor:
    counts = value.to(torch.float64)
    if bool((counts < 0).any()) or not bool(torch.isfinite(counts).all()):
        raise BadInput(f"context {name} must be finite and not negative, got a minimum of {counts.min():g}.")
    return counts


@register("ldam")
class LDAM(RowLoss):
    """Label-distribution-aware margin: rare tokens must win by a larger margin.

        m_c = max_margin count_c^(-1/4) / max_c' count_c'^(-1/4),   f = cross-entropy of scale (z - m_y Y)

    Args:
        max_margin: margin of the rarest token, > 0.
        scale: factor of the logits, > 0; 30 belongs to cosine logits, 1 to those of a language model.

    Hazards:
        - Tokens that never occur count as 1, so one of them sets the largest margin.

    Official code:
        - Hard-coded CUDA tensors and a deprecated uint8 mask; a count of 0 gives inf.
    """

    paper = "Cao et al. 2019, Learning Imbalanced Datasets with Label-Distribution-Aware Margin Loss, https://arxiv.org/abs/1906.07413"
    needs = ("class_counts",)
    bounds = (0.0, math.inf)

    def __init__(self, max_margin: float = 0.5, scale: float = 1.0) -> None:
        super().__init__()
        self.max_margin = number("max_margin", max_margin, above=0)
        self.scale = number("scale", scale, above=0)

    def prepare(self, name: str, value: Tensor) -> Tensor:
        margin = _counts(name, value).clamp_min(1) ** -0.25
        return self.max_margin * margin / margin.max()

    def value(self, rows: Tensor, batch: Batch) -> Tensor:
        margin = self.scale * batch.context["class_counts"][batch.labels].to(rows.dtype)
        log_p = target_log_prob(self.scale * rows, batch.labels)
        # log(1 - p + p e^-m) in place of a copy of the rows with the target lowered by m
        return margin - log_p + torch.log1p(log_p.exp() * torch.expm1(-margin))


@register("logit_adjustment")
class LogitAdjustment(RowLoss):
    """Cross-entropy on logits raised by the log prior of each token; infer without it.

        f = -log softmax(z + tau log pi)_t,   pi_c = count_c / sum of counts

    Args:
        tau: strength, >= 0; 0 is cross-entropy.

    Hazards:
        - Generate without the adjustment: the model learns to leave the prior out.
        - Tokens that never occur count as 1.
    """

    paper = "Menon et al. 2021, Long-tail Learning via Logit Adjustment, https://arxiv.org/abs/2007.07314"
    needs = ("class_counts",)
    bounds = (0.0, math.inf)

    def __init__(self, tau: float = 1.0) -> None:
        super().__init__()
        self.tau = number("tau", tau, at_least=0)

    def prepare(self, name: str, value: Tensor) -> Tensor:
        counts = _counts(name, value).clamp_min(1)
        return self.tau * (counts / counts.sum()).log()

    def value(self, rows: Tensor, batch: Batch) -> Tensor:
        return -target_log_prob(rows + batch.context["class_counts"].to(rows.dtype), batch.labels)


@register("power_law_decay")
class PowerLawDecay(TargetLoss):
    """Cross-entropy weighted by a negative power of the target's frequency: rare tokens weigh more.

        w_v = (freq_v + epsilon)^(-alpha),   L = sum_i w_{y_i} (-log p_t) / sum_i w_{y_i}

    Args:
        alpha: exponent, >= 0; 0 is cross-entropy.
        epsilon: added to the frequencies, >= 0.

    Hazards:
        - With raw counts and the small default epsilon one token that never occurred weighs 1e7 and dominates: use
          counts >= 1 or epsilon = 1. Frequencies are those of label tokens.
        - The denominator is that of the micro-batch (scope local+stats).

    Official code:
        - Overrides `_compute_loss`, which the Hugging Face trainer never calls.
    """

    paper = "Shao et al. 2025, Power-Law Decay Loss, https://arxiv.org/abs/2505.16900"
    scope = "local+stats"
    needs = ("token_frequencies",)
    bounds = (0.0, math.inf)

    def __init__(self, alpha: float = 1.0, epsilon: float = 1e-7) -> None:
        super().__init__()
        self.alpha = number("alpha", alpha, at_least=0)
        self.epsilon = number("epsilon", epsilon, at_least=0)

    def prepare(self, name: str, value: Tensor) -> Tensor:
        frequency = _counts(name, value) + self.epsilon
        if self.alpha > 0 and not bool((frequency > 0).all()):
            raise BadInput("context token_frequencies has a 0 and epsilon is 0; give epsilon or count from 1.")
        return frequency**-self.alpha

    def value(self, log_p: Tensor, batch: Batch) -> Tensor:
        return -log_p

    def weight(self, log_p: Tensor, batch: Batch) -> Tensor:
        weight = batch.context["token_frequencies"][batch.labels]
        return weight / weight.mean()
