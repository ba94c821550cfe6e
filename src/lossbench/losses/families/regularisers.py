"""Cross-entropy with a second term, and targets that are not one-hot."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..base import RowLoss, Statistics, StatisticsLoss
from ..batch import Batch
from ..numerics import complement, focal_gate, focal_value, pick, stop_gradient, target_log_prob, with_gate
from ..parameters import choice, flag, number
from ..registry import register


@register("label_smoothing")
class LabelSmoothing(StatisticsLoss):
    """Cross-entropy against a target that gives a little probability to every token.

        f = (1 - s) (-log p_t) + s (lse - sum_z / V)                                   uniform (torch)
        f = (1 - s) (-log p_t) + s / (V - 1) * sum_{j != t} (-log p_j)                 exclude_target (fairseq)
        gradient p - smoothed target

    Args:
        smoothing: s in [0, 1); 0 is cross-entropy.
        mode: uniform or exclude_target.

    Hazards:
        - The smoothing term is 10 nats and more at V = 128k: values are not comparable between losses.
    """

    paper = "Szegedy et al. 2016, Rethinking the Inception Architecture, https://arxiv.org/abs/1512.00567"
    statistics = ("lse", "sum_z")
    bounds = (0.0, math.inf)

    def __init__(self, smoothing: float = 0.1, mode: str = "uniform") -> None:
        super().__init__()
        self.smoothing = number("smoothing", smoothing, at_least=0, below=1)
        self.mode = choice("mode", mode, ("uniform", "exclude_target"))

    def value(self, statistics: Statistics, batch: Batch) -> Tensor:
        s, nll, v = self.smoothing, -statistics.log_p, batch.vocabulary
        all_nll = statistics.lse - statistics.sum_z / v  # mean over the vocabulary of -log p_j
        if self.mode == "uniform":
            return (1 - s) * nll + s * all_nll
        return (1 - s) * nll + s * (v * all_nll - nll) / (v - 1)


@register("z_loss")
class ZLoss(StatisticsLoss):
    """Cross-entropy plus the squared log-partition function (PaLM), which keeps logits from drifting.

        f = -log p_t + coefficient * lse^2
        gradient (p - Y) + 2 coefficient lse p

    Args:
        coefficient: >= 0; 0 is cross-entropy, 1e-4 in PaLM, T5X and OLMo.

    Hazards:
        - Not invariant to adding a constant to the logits, by design; lse must be float32.
        - Not the z-loss of de Brebisson, which is spherical_z_loss.
    """

    paper = "Chowdhery et al. 2022, PaLM, section 5, https://arxiv.org/abs/2204.02311"
    statistics = ("lse",)
    shift_invariant = False
    bounds = (0.0, math.inf)

    def __init__(self, coefficient: float = 1e-4) -> None:
        super().__init__()
        self.coefficient = number("coefficient", coefficient, at_least=0)

    def value(self, statistics: Statistics, batch: Batch) -> Tensor:
        return -statistics.log_p + self.coefficient * statistics.lse.square()


@register("confidence_penalty")
class ConfidencePenalty(StatisticsLoss):
    """Cross-entropy minus the entropy of the prediction: peaked predictions are penalised.

        f = -log p_t - beta H,   H = lse - sum_j p_j z_j
        gradient (p - Y) + beta p (log p + H)

    Args:
        beta: >= 0; 0 is cross-entropy.

    Hazards:
        - Can be negative.
    """

    paper = "Pereyra et al. 2017, Regularizing Neural Networks by Penalizing Confident Output Distributions, https://arxiv.org/abs/1701.06548"
    statistics = ("lse", "sum_pz")

    def __init__(self, beta: float = 0.1) -> None:
        super().__init__()
        self.beta = number("beta", beta, at_least=0)

    def value(self, statistics: Statistics, batch: Batch) -> Tensor:
        return -statistics.log_p - self.beta * statistics.entropy


@register("brier")
class Brier(StatisticsLoss):
    """Brier score: squared distance between prediction and one-hot target.

        f = sum_j (p_j - Y_j)^2 = sum_p2 - 2 p_t + 1
        gradient 2 p (p - Y - (sum_p2 - p_t))

    Hazards:
        - Bounded: the gradient vanishes for confident mistakes.
    """

    paper = "Brier 1950, Verification of Forecasts, https://doi.org/10.1175/1520-0493(1950)078%3C0001:VOFEIT%3E2.0.CO;2"
    statistics = ("sum_p2",)
    bounds = (0.0, 2.0)

    def value(self, statistics: Statistics, batch: Batch) -> Tensor:
        p = statistics.log_p.exp()
        return (statistics.sum_p2 - p.square()) + complement(statistics.log_p).square()


@register("squentropy")
class Squentropy(StatisticsLoss):
    """Cross-entropy plus the mean square of the logits of the wrong tokens.

        f = -log p_t + (sum_z2 - z_t^2) / (V - 1)
        gradient (p - Y) + 2 z (1 - Y) / (V - 1)

    Args:
        center: subtract each row's mean logit first.

    Hazards:
        - Not invariant to adding a constant: a pretrained head with mean logit -3 starts with an extra 13. Use center
          for fine-tuning.
    """

    paper = "Hui et al. 2023, Cut your Losses with Squentropy, https://arxiv.org/abs/2302.03952"
    statistics = ("z_t", "sum_z", "sum_z2")
    bounds = (0.0, math.inf)

    def __init__(self, center: bool = False) -> None:
        super().__init__()
        self.center = flag("center", center)
        self.shift_invariant = self.center

    def value(self, statistics: Statistics, batch: Batch) -> Tensor:
        square, z_t, v = statistics.sum_z2, statistics.z_t, batch.vocabulary
        if self.center:
            mean = statistics.sum_z / v
            square, z_t = square - v * mean.square(), z_t - mean
        return -statistics.log_p + (square - z_t.square()) / (v - 1)


@register("asymmetric")
class Asymmetric(RowLoss):
    """Asymmetric loss for single labels: focal weights of different strength on the target and on the smoothed rest.

        f = -sum_j S_j w_j log p_j,   S = (1 - smoothing) Y + smoothing / V
        w_t = (1 - p_t)^gamma_pos,  w_j = p_j^gamma_neg for j != t; both differentiated

    Args:
        gamma_pos: exponent on the target, >= 0.
        gamma_neg: exponent on the other tokens, >= 0.
        smoothing: in [0, 1).

    Hazards:
        - Without smoothing gamma_neg has no effect: gamma_pos = 0 is cross-entropy, otherwise it is focal.

    Official code:
        - The multi-label class of the same file sums instead of averaging and switches gradients on globally.
    """

    paper = "Ridnik et al. 2021, Asymmetric Loss For Multi-Label Classification, https://arxiv.org/abs/2009.14119"
    bounds = (0.0, math.inf)

    def __init__(self, gamma_pos: float = 0.0, gamma_neg: float = 4.0, smoothing: float = 0.1) -> None:
        super().__init__()
        self.gamma_pos = number("gamma_pos", gamma_pos, at_least=0)
        self.gamma_neg = number("gamma_neg", gamma_neg, at_least=0)
        self.smoothing = number("smoothing", smoothing, at_least=0, below=1)

    def value(self, rows: Tensor, batch: Batch) -> Tensor:
        target = target_log_prob(rows, batch.labels)
        known = target.detach()
        focal = with_gate(target, focal_value(known, self.gamma_pos), focal_gate(known, self.gamma_pos))
        share = self.smoothing / batch.vocabulary
        if share == 0:
            return focal
        log_p = rows.log_softmax(1)
        others = -(torch.exp(self.gamma_neg * log_p) * log_p)
        rest = others.sum(1) - pick(others, batch.labels)
        return (1 - self.smoothing + share) * focal + share * rest


@register("logit_clip")
class LogitClip(RowLoss):
    """Cross-entropy on logits whose norm is clipped.

        z' = z * min(1, tau / ||z||_p),   f = -log softmax(z')_t
        gradient where clipped, p = 2: (tau / ||z||) (h - zhat <zhat, h>),  h = softmax(z') - Y, zhat = z / ||z||

    Args:
        tau: largest norm, > 0.
        norm_p: order p of the norm, >= 1.
        center: subtract each row's mean logit first.

    Hazards:
        - tau must grow with sqrt(V): pretrained rows have norm 1e3 at V = 128k, so tau = 1 forces the uniform
          distribution.
        - Not invariant to adding a constant to the logits unless center is set.

    Official code:
        - Compares with `temp` but rescales to 1/temp, consistent for temp = 1 only; its README uses 1.5.
    """

    paper = "Wei et al. 2023, Mitigating Memorization of Noisy Labels by Clipping the Model Prediction, https://arxiv.org/abs/2212.04055"
    bounds = (0.0, math.inf)

    def __init__(self, tau: float = 1.0, norm_p: float = 2.0, center: bool = False) -> None:
        super().__init__()
        self.tau = number("tau", tau, above=0)
        self.norm_p = number("norm_p", norm_p, at_least=1)
        self.center = flag("center", center)
        self.shift_invariant = self.center

    def value(self, rows: Tensor, batch: Batch) -> Tensor:
        if self.center:
            rows = rows - rows.mean(1, keepdim=True)
        norm = torch.linalg.vector_norm(rows, self.norm_p, dim=1, keepdim=True) + 1e-7  # as the authors' code
        return -target_log_prob(rows * (self.tau / norm.clamp_min(self.tau)), batch.labels)


@register("gem")
class GEM(RowLoss):
    """GEM: distribution matching with entropy, written as a weighted pairwise comparison of logits.

        f = -sum_j q_j w_j (log p_t - log p_j),   q = sg softmax(z / beta)
        w = 1 (linear) or sg sigmoid(0.01 (z_j - z_t)) (logsigmoid)
        gradient q w - Y sum_k q_k w_k

    Args:
        beta: temperature, > 0; the scripts use 0.7.
        h: logsigmoid or linear.

    Hazards:
        - Can be negative. linear GEM has exactly the gradient q - Y, that is beta times cross-entropy on z / beta; at
          beta = 1 it is cross-entropy in gradient, not in value.

    Official code:
        - Version 1 averages per micro-batch, version 2 takes the number of items, as normalizer here.
    """

    paper = "Li et al. 2025, Preserving Diversity in Supervised Fine-Tuning of Large Language Models, https://arxiv.org/abs/2408.16673"
    cost = "that of cross-entropy and a second softmax at temperature beta"

    def __init__(self, beta: float = 0.7, h: str = "logsigmoid") -> None:
        super().__init__()
        self.beta = number("beta", beta, above=0)
        self.h = choice("h", h, ("logsigmoid", "linear"))

    def value(self, rows: Tensor, batch: Batch) -> Tensor:
        ahead = rows - pick(rows, batch.labels)[:, None]  # log p_j - log p_t
        weight = (stop_gradient(rows) / self.beta).softmax(1)
        if self.h == "logsigmoid":
            weight = weight * torch.sigmoid(0.01 * stop_gradient(ahead))
        return (weight * ahead).sum(1)
