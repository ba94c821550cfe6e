"""Losses that trust a label less the less the model believes it: bounded or damped at small p_t."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..base import RowLoss, TargetLoss
from ..batch import Batch
from ..numerics import complement, pick, stop_gradient
from ..parameters import choice, flag, number
from ..registry import register
from .distribution import power_loss

LOG_OF_ZERO_LABEL = -math.log(1e-4)  # 9.21034, the authors' code; the paper's A is -4


@register("generalized_cross_entropy")
class GeneralizedCrossEntropy(TargetLoss):
    """Generalized cross-entropy: a power that joins MAE (q = 1) and cross-entropy (q to 0).

        f = (1 - p_t^q) / q
        gate = p_t^q
        with truncation_k = k: tokens with p_t <= k cost the constant (1 - k^q) / q and have gate 0

    Args:
        q: exponent, >= 0; below 1e-6 it is cross-entropy. Also the "-p^q" of Li et al. 2025.
        truncation_k: threshold of the truncated version in (0, 1), or null for none.

    Hazards:
        - The gate tends to 0 for improbable targets: a badly fitting or untrained model hardly moves.

    Official code:
        - Clamps p at 1e-7, so that gradients below are exactly 0; language-model targets do fall below. No clamp here.
        - The truncated version drops the constant and needs a stored weight for each example; the weight is 1[p_t > k].
    """

    paper = (
        "Zhang and Sabuncu 2018, Generalized Cross Entropy Loss, https://arxiv.org/abs/1805.07836; "
        "Li et al. 2025, Beyond Log Likelihood, https://arxiv.org/abs/2510.00526"
    )

    def __init__(self, q: float = 0.7, truncation_k: float | None = None) -> None:
        super().__init__()
        self.q = number("q", q, at_least=0)
        self.truncation_k = None if truncation_k is None else number("truncation_k", truncation_k, above=0, below=1)
        self.bounds = (0.0, 1 / self.q if self.q >= 1e-6 else math.inf)

    def value(self, log_p: Tensor, batch: Batch) -> Tensor:
        value = power_loss(log_p, self.q)
        if self.truncation_k is None:
            return value
        limit = log_p.new_tensor(self.truncation_k).log()
        return torch.where(log_p > limit, value, power_loss(limit, self.q))


@register("mae")
class MAE(TargetLoss):
    """Mean absolute error between prediction and one-hot target, halved: 1 - p_t.

        f = scale (1 - p_t)
        gate = scale p_t

    Args:
        scale: factor, > 0; the true L1 distance is scale = 2.

    Hazards:
        - The gate tends to 0 with p_t: a badly fitting or untrained model hardly moves.
    """

    paper = (
        "Ghosh et al. 2017, Robust Loss Functions under Label Noise, https://arxiv.org/abs/1712.09482; "
        '"-p" in Li et al. 2025, https://arxiv.org/abs/2510.00526'
    )

    def __init__(self, scale: float = 1.0) -> None:
        super().__init__()
        self.scale = number("scale", scale, above=0)
        self.bounds = (0.0, self.scale)

    def value(self, log_p: Tensor, batch: Batch) -> Tensor:
        return self.scale * complement(log_p)


@register("reverse_cross_entropy")
class ReverseCrossEntropy(TargetLoss):
    """Cross-entropy with prediction and label exchanged, log 0 of the label replaced by log 1e-4.

        f = scale * 9.21034 (1 - p_t)
        gate = scale * 9.21034 p_t

    Args:
        scale: factor, > 0.

    Hazards:
        - It is 9.21 times mae: compare it with mae at 9.21 times the learning rate, not as a method of its own.

    Official code:
        - Clamps every p_j at 1e-7 and sums over the row: at V = 128k this adds 0.118 to the value and kills gradients.
    """

    paper = "Wang et al. 2019, Symmetric Cross Entropy, https://arxiv.org/abs/1908.06112"

    def __init__(self, scale: float = 1.0) -> None:
        super().__init__()
        self.scale = number("scale", scale, above=0)
        self.bounds = (0.0, self.scale * LOG_OF_ZERO_LABEL)

    def value(self, log_p: Tensor, batch: Batch) -> Tensor:
        return self.scale * LOG_OF_ZERO_LABEL * complement(log_p)


@register("symmetric_cross_entropy")
class SymmetricCrossEntropy(TargetLoss):
    """Cross-entropy plus reverse cross-entropy.

        f = -alpha log p_t + beta * 9.21034 (1 - p_t)
        gate = alpha + 9.21034 beta p_t

    Args:
        alpha: weight of cross-entropy, >= 0 (0.1 for CIFAR-10, 6 for CIFAR-100).
        beta: weight of reverse cross-entropy, >= 0 (1 for CIFAR-10, 0.1 for CIFAR-100).

    Hazards:
        - It is alpha times poly1 with epsilon = 9.21 beta / alpha.

    Official code:
        - Clamps every p_j at 1e-7 as reverse_cross_entropy does.
    """

    paper = "Wang et al. 2019, Symmetric Cross Entropy, https://arxiv.org/abs/1908.06112"
    bounds = (0.0, math.inf)

    def __init__(self, alpha: float = 0.1, beta: float = 1.0) -> None:
        super().__init__()
        self.alpha = number("alpha", alpha, at_least=0)
        self.beta = number("beta", beta, at_least=0)

    def value(self, log_p: Tensor, batch: Batch) -> Tensor:
        return -self.alpha * log_p + self.beta * LOG_OF_ZERO_LABEL * complement(log_p)


@register("dft")
class DFT(TargetLoss):
    """Dynamic fine-tuning: cross-entropy weighted by the detached probability of the target.

        f = -sg(p_t) log p_t
        gate = p_t

    Hazards:
        - The value lies in [0, 1/e] and is not monotone in p_t (largest at p_t = 1/e): never use it for early stopping
          or to choose a checkpoint; log cross-entropy next to it.
        - The gate tends to 0 with p_t: what the model does not believe, it does not learn.

    Official code:
        - Divides by n + 1e-8; TRL and LLaMA-Factory by n or num_items, as here.
    """

    paper = "Wu et al. 2025, On the Generalization of SFT, https://arxiv.org/abs/2508.05629"
    bounds = (0.0, math.exp(-1))

    def value(self, log_p: Tensor, batch: Batch) -> Tensor:
        return -stop_gradient(log_p).exp() * log_p

    def warnings(self) -> list[str]:
        return [
            "the value of dft is not monotone in the target's probability (largest at 1/e): do not choose checkpoints "
            "or stop early on it; use val/nll."
        ]


@register("tailr")
class TaiLr(TargetLoss):
    """TaiLr: cross-entropy with a detached weight that approximates the total variation distance.

        f = -sg(w) log p_t,   w = clip(p_t / (gamma + (1 - gamma) p_t), min_weight, 1)
        gate = w

    Args:
        gamma: in [0, 1]; 0 is cross-entropy, 1 is dft (with floor min_weight).
        min_weight: lower limit of the weight in [0, 1]; it keeps gradients of improbable targets alive.

    Hazards:
        - The defaults are those of the authors' code and make it a twin of dft; their scripts use (1e-7, 0.2) for long
          BART, (0.1, 0.3) for translation and (0.8, 0.2) for summarisation.

    Official code:
        - The `tvd` mode of the EMO repository has gamma reversed and is mixed with cross-entropy; the use_tailr of
          error norm truncation puts the NLL in place of p_t. Neither is TaiLr.
    """

    paper = "Ji et al. 2023, Tailoring Language Generation Models under Total Variation Distance, https://arxiv.org/abs/2302.13344"
    bounds = (0.0, math.inf)

    def __init__(self, gamma: float = 1.0, min_weight: float = 0.0) -> None:
        super().__init__()
        self.gamma = number("gamma", gamma, at_least=0, at_most=1)
        self.min_weight = number("min_weight", min_weight, at_least=0, at_most=1)

    def value(self, log_p: Tensor, batch: Batch) -> Tensor:
        return -log_p

    def weight(self, log_p: Tensor, batch: Batch) -> Tensor | None:
        if self.gamma == 0:
            return None
        return (1 / (self.gamma * torch.exp(-log_p) + (1 - self.gamma))).clamp(self.min_weight, 1)


@register("bootstrap")
class Bootstrap(RowLoss):
    """Bootstrapping: the target is mixed with the model's own prediction.

        f = -sum_j [beta Y_j + (1 - beta) T_j] log p_j,   T = p (soft) or the one-hot of the arg max (hard)

    Args:
        mode: soft or hard.
        beta: weight of the label in [0, 1]; 1 is cross-entropy. The papers use 0.95 for soft and 0.8 for hard.
        detach: treat the soft target as a constant.

    Hazards:
        - soft with detach adds no gradient at all (p - p = 0): it is beta times cross-entropy. Without detach it adds
          (1 - beta) times the entropy, which is minimised.
    """

    paper = (
        "Reed et al. 2014, https://arxiv.org/abs/1412.6596; "
        "Arazo et al. 2019, Unsupervised Label Noise Modeling, https://arxiv.org/abs/1904.11238"
    )
    bounds = (0.0, math.inf)

    def __init__(self, mode: str = "soft", beta: float = 0.95, detach: bool = False) -> None:
        super().__init__()
        self.mode = choice("mode", mode, ("soft", "hard"))
        self.beta = number("beta", beta, at_least=0, at_most=1)
        self.detach = flag("detach", detach)

    def value(self, rows: Tensor, batch: Batch) -> Tensor:
        log_p = rows.log_softmax(1)
        if self.mode == "hard":
            own = -log_p.gather(1, log_p.argmax(1, keepdim=True)).squeeze(1)
        else:
            p = stop_gradient(log_p).exp() if self.detach else log_p.exp()
            own = -(p * log_p).sum(1)
        return -self.beta * pick(log_p, batch.labels) + (1 - self.beta) * own


@register("active_passive")
class ActivePassive(RowLoss):
    """Active-passive loss: a normalised loss that fits the label plus one that only pushes the others down.

        nce = -log p_t / sum_j (-log p_j)
        nfl = sg((1-p_t)^gamma) (-log p_t) / sum_j sg((1-p_j)^gamma) (-log p_j)
        ngce = (1 - p_t^q) / (V - sum_j p_j^q)
        mae = 1 - p_t,   rce = 9.21034 (1 - p_t)
        f = alpha active + beta passive

    Args:
        active: nce, nfl or ngce.
        passive: mae or rce.
        alpha: weight of the active part, >= 0.
        beta: weight of the passive part, >= 0 (alpha = beta = 1 on CIFAR-10, 10 and 0.1 on CIFAR-100).
        gamma: focal exponent of nfl, >= 0.
        q: exponent of ngce in (0, 1].

    Hazards:
        - The active part has size 1/V: 8e-6 for a random model at V = 128k. Multiply alpha by V or it does nothing.

    Official code:
        - The normaliser of normalised RCE is mis-parenthesised, some combinations ignore alpha, p is clamped at 1e-7.
    """

    paper = "Ma et al. 2020, Normalized Loss Functions, https://arxiv.org/abs/2006.13554"

    def __init__(
        self,
        active: str = "nce",
        passive: str = "rce",
        alpha: float = 1.0,
        beta: float = 1.0,
        gamma: float = 0.5,
        q: float = 0.7,
    ) -> None:
        super().__init__()
        self.active = choice("active", active, ("nce", "nfl", "ngce"))
        self.passive = choice("passive", passive, ("mae", "rce"))
        self.alpha = number("alpha", alpha, at_least=0)
        self.beta = number("beta", beta, at_least=0)
        self.gamma = number("gamma", gamma, at_least=0)
        self.q = number("q", q, above=0, at_most=1)
        self.passive_scale = LOG_OF_ZERO_LABEL if self.passive == "rce" else 1.0
        self.bounds = (0.0, self.alpha + self.beta * self.passive_scale)

    def value(self, rows: Tensor, batch: Batch) -> Tensor:
        log_p = rows.log_softmax(1)
        target = pick(log_p, batch.labels)
        if self.active == "ngce":
            active = -torch.expm1(self.q * target) / -torch.expm1(self.q * log_p).sum(1)
        else:
            weighted = -log_p
            if self.active == "nfl":
                weighted = complement(stop_gradient(log_p)) ** self.gamma * weighted
            active = pick(weighted, batch.labels) / weighted.sum(1)
        return self.alpha * active + self.beta * self.passive_scale * complement(target)
