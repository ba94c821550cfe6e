"""Losses that replace the softmax itself by another link from logits to probabilities."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from ..base import RowLoss
from ..batch import Batch
from ..errors import BadParameter
from ..numerics import pick, with_gradient
from ..parameters import number
from ..registry import register


@register("entmax")
class Entmax(RowLoss):
    """Fenchel-Young loss of the Tsallis entropy: the sparse alpha-entmax in place of the softmax.

        p* = alpha-entmax(z),   L = (1 - sum p*^alpha) / (alpha (alpha - 1)) + <p* - Y, z>
        gradient p* - Y

    Args:
        alpha: > 1; 1.5 in the papers and 2 (sparsemax) are exact by sorting, others by bisection. Towards 1 it becomes
            cross-entropy.

    Hazards:
        - The loss is exactly 0 once z_t >= the largest other logit + 1 / (alpha - 1).
        - Softmax sampling does not match the trained link; p*_t may be 0, so read perplexity with care.

    Official code:
        - `ignore_index` is honoured only if it is not negative: labels of -100 crash or corrupt.
    """

    paper = (
        "Peters et al. 2019, Sparse Sequence-to-Sequence Models, https://arxiv.org/abs/1905.05702; "
        "Roulet et al. 2025, https://arxiv.org/abs/2501.18537"
    )
    cost = "that of cross-entropy and a sort (alpha 1.5 or 2) or 60 passes (other alpha) of each row"
    bounds = (0.0, math.inf)

    def __init__(self, alpha: float = 1.5) -> None:
        super().__init__()
        self.alpha = number("alpha", alpha, above=1)

    def value(self, rows: Tensor, batch: Batch) -> Tensor:
        p = entmax(rows.detach(), self.alpha)
        entropy = (1 - (p**self.alpha).sum(1)) / (self.alpha * (self.alpha - 1))
        # p* is the maximiser, so its own derivative drops out (envelope theorem).
        return entropy + (p * (rows - pick(rows, batch.labels)[:, None])).sum(1)


def entmax(rows: Tensor, alpha: float) -> Tensor:
    """alpha-entmax of each row (n, V): [(alpha - 1) z - tau]_+ ^ (1 / (alpha - 1)) that sums to 1."""
    x = (rows - rows.amax(1, keepdim=True)) * (alpha - 1)
    if alpha == 2:
        threshold = _sparsemax_threshold(x)
    elif alpha == 1.5:
        threshold = _entmax15_threshold(x)
    else:
        threshold = _bisect_threshold(x, alpha)
    p = (x - threshold).clamp_min(0) ** (1 / (alpha - 1))
    return p / p.sum(1, keepdim=True)


def _sparsemax_threshold(x: Tensor) -> Tensor:
    ordered = x.sort(1, descending=True).values
    k = torch.arange(1, x.shape[1] + 1, device=x.device, dtype=x.dtype)
    candidate = (ordered.cumsum(1) - 1) / k
    size = (ordered > candidate).sum(1, keepdim=True)
    return candidate.gather(1, size - 1)


def _entmax15_threshold(x: Tensor) -> Tensor:
    ordered = x.sort(1, descending=True).values
    k = torch.arange(1, x.shape[1] + 1, device=x.device, dtype=x.dtype)
    # Outside the support the values are of no account; clamping them keeps sums of large squares from losing digits.
    ordered = ordered.clamp_min(-2)
    mean = ordered.cumsum(1) / k
    spread = ordered.square().cumsum(1) - k * mean.square()
    candidate = mean - ((1 - spread) / k).clamp_min(0).sqrt()
    size = ((candidate <= ordered) & (ordered > -1)).sum(1, keepdim=True)
    return candidate.gather(1, size - 1)


def _bisect_threshold(x: Tensor, alpha: float) -> Tensor:
    low = x.new_full((x.shape[0], 1), -1.0)  # at low the sum is at least 1, the largest entry being 0
    high = torch.full_like(low, -(x.shape[1] ** (1 - alpha)))
    for _ in range(60):
        middle = 0.5 * (low + high)
        above = ((x - middle).clamp_min(0) ** (1 / (alpha - 1))).sum(1, keepdim=True) >= 1
        low = torch.where(above, middle, low)
        high = torch.where(above, high, middle)
    return 0.5 * (low + high)


@register("bi_tempered")
class BiTempered(RowLoss):
    """Bi-tempered logistic loss: a heavy-tailed softmax (t2 > 1) under a bounded logarithm (t1 < 1).

        p = exp_{t2}(z - lambda) that sums to 1,   log_t(u) = (u^(1-t) - 1) / (1 - t)
        f = -log_{t1}(p_t) - (1 - sum_j p_j^(2 - t1)) / (2 - t1)
        gradient delta - (sum delta) p^t2 / sum p^t2,   delta = (p - Y) p^(t2 - t1)

    Args:
        t1: temperature of the logarithm in [0, 2); below 1 the loss is bounded.
        t2: temperature of the softmax, >= t1; above 1 its tail is heavy. t1 = t2 = 1 is cross-entropy.

    Hazards:
        - Sampling must use the same link; softmax sampling does not match a model trained with t2 > 1.

    Official code:
        - Its 5 fixed-point iterations are not converged for a large vocabulary; here Newton's method runs to rounding.
    """

    paper = "Amid et al. 2019, Robust Bi-Tempered Logistic Loss, https://arxiv.org/abs/1906.03361"
    cost = "that of cross-entropy and 10 to 40 passes of Newton's method over each row"
    bounds = (0.0, math.inf)

    def __init__(self, t1: float = 0.8, t2: float = 1.2) -> None:
        super().__init__()
        self.t1 = number("t1", t1, at_least=0, below=2)
        self.t2 = number("t2", t2, at_least=0)
        if self.t2 < self.t1:
            raise BadParameter(f"t2 must be >= t1, got t1 = {t1!r} and t2 = {t2!r}.")

    def value(self, rows: Tensor, batch: Batch) -> Tensor:
        z = rows.detach()
        log_p = z.log_softmax(1) if self.t2 == 1 else tempered_log_softmax(z, self.t2)
        p = log_p.exp()
        target = pick(log_p, batch.labels)
        log_t = target if self.t1 == 1 else torch.expm1((1 - self.t1) * target) / (1 - self.t1)
        value = -log_t - (1 - (p ** (2 - self.t1)).sum(1)) / (2 - self.t1)
        delta = p.scatter_add(1, batch.labels[:, None], -torch.ones_like(target)[:, None]) * p ** (self.t2 - self.t1)
        escort = p**self.t2
        escort = escort / escort.sum(1, keepdim=True)
        return with_gradient(rows, value, delta - delta.sum(1, keepdim=True) * escort)


def tempered_log_softmax(z: Tensor, t: float) -> Tensor:
    """(n, V) log of exp_t(z - lambda) with lambda such that each row sums to 1; t != 1.

    The sum is convex and decreasing in lambda, so Newton's method from lambda = max z climbs to the root from the left.
    """
    x = z - z.amax(1, keepdim=True)
    tiny = torch.finfo(x.dtype).tiny
    shift = torch.zeros_like(x[:, :1])
    for _ in range(100):
        base = (1 + (1 - t) * (x - shift)).clamp_min(tiny)
        p = base ** (1 / (1 - t))
        step = (p.sum(1, keepdim=True) - 1) / (p / base).sum(1, keepdim=True)  # d exp_t(u) / du = exp_t(u)^t = p / base
        shift = shift + step
        if bool((step.abs() <= 4 * torch.finfo(x.dtype).eps * (1 + shift.abs())).all()):
            break
    return (1 + (1 - t) * (x - shift)).clamp_min(0).log() / (1 - t)


@register("stablemax")
class StableMax(RowLoss):
    """Cross-entropy with a linear function in place of the exponential, which cannot overflow.

        s(x) = x + 1 for x >= 0, 1 / (1 - x) for x < 0;   f = -log(s(z_t) / sum_j s(z_j))
        gradient s'(z_j) (1 / sum s - Y_j / s_t),   s' = 1 or 1 / (1 - x)^2

    Hazards:
        - Heavy tail: a row where cross-entropy is 0.04 costs 8.1 at V = 128k. A pretrained head must be re-fitted, and
          sampling must use the same link.
        - Not invariant to adding a constant to the logits.
    """

    paper = "Prieto et al. 2025, Grokking at the Edge of Numerical Stability, https://arxiv.org/abs/2501.04697"
    shift_invariant = False
    bounds = (0.0, math.inf)

    def value(self, rows: Tensor, batch: Batch) -> Tensor:
        positive = rows >= 0
        s = torch.where(positive, rows + 1, 1 / (1 - torch.where(positive, 0.0, rows)))
        return s.sum(1).log() - pick(s, batch.labels).log()


@register("spherical_z_loss")
class SphericalZLoss(RowLoss):
    """Z-loss of the spherical family: a soft margin on the standardised logit of the target.

        zc = (z_t - mean) / std of the row (population),   f = softplus(a (b - zc)) / a
        gradient -sigmoid(a (b - zc)) / std * (Y_j - 1/V - zc zhat_j / V),   zhat = (z - mean) / std

    Args:
        a: sharpness, > 0.
        b: margin; zc cannot exceed sqrt(V - 1), so b should be below that.

    Hazards:
        - Invariant to shift and to positive scale: logits can drift in scale and perplexity means nothing unless a
          temperature is fitted. a and b are tuned for each vocabulary size; 0.1 and 10 are a start, not a finding.
        - Not PaLM's z-loss, which is z_loss.
    """

    paper = "de Brebisson and Vincent 2016, The Z-loss, https://arxiv.org/abs/1604.08859"
    bounds = (0.0, math.inf)

    def __init__(self, a: float = 0.1, b: float = 10.0) -> None:
        super().__init__()
        self.a = number("a", a, above=0)
        self.b = number("b", b)

    def value(self, rows: Tensor, batch: Batch) -> Tensor:
        variance, mean = torch.var_mean(rows, dim=1, correction=0)
        flat = variance == 0  # all logits equal: no direction to standardise
        deviation = torch.where(flat, 1.0, variance).sqrt()
        standardised = torch.where(flat, 0.0, (pick(rows, batch.labels) - mean) / deviation)
        return F.softplus(self.a * (self.b - standardised)) / self.a
