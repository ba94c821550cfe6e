"""Losses of the predicted distribution that look at the target's probability alone: cross-entropy and its kin."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from ..base import TargetLoss
from ..batch import Batch
from ..errors import BadInput, BadParameter
from ..numerics import complement, focal_gate, focal_value, log_complement, stop_gradient
from ..parameters import choice, flag, integer, number
from ..registry import register


@register("cross_entropy")
class CrossEntropy(TargetLoss):
    """Negative log-likelihood of the target, the reference that every other loss is measured against.

        f = -log p_t
        gate = 1

    Hazards:
        - Values are comparable between models of the same tokenizer only.
    """

    paper = "Maximum likelihood; Bengio et al. 2003, https://www.jmlr.org/papers/v3/bengio03a.html"
    bounds = (0.0, math.inf)

    def value(self, log_p: Tensor, batch: Batch) -> Tensor:
        return -log_p


@register("focal")
class Focal(TargetLoss):
    """Focal loss: down-weights tokens that are already certain.

        f = -w_y (1 - p_t)^gamma log p_t
        gate = w_y [(1 - p_t)^gamma - gamma p_t log p_t (1 - p_t)^(gamma - 1)]
        gate = w_y (1 - p_t)^gamma                                    with detach_weight

    Args:
        gamma: strength of the down-weighting, >= 0; 0 is cross-entropy.
        class_weights: V positive weights w, one a vocabulary entry, or null for 1 (the literature's alpha).
        detach_weight: treat (1 - p_t)^gamma as a constant weight instead of differentiating it.

    Hazards:
        - The gate exceeds 1 for hard tokens: at most 1.14 for gamma = 1, 1.22 for gamma = 2, 1.39 for gamma = 5.
        - For 0 < gamma < 1 the derivative is singular at p_t = 1; the closed-form gate with its limit 0 is used.

    Official code:
        - ShannonAI's code gives NaN gradients for gamma < 1 once p_t rounds to 1.
        - The implementation that the vision-losses paper trained with multiplies ignored rows by a mask, so they enter
          the mean as uniform rows of class 0.
        - Two conventions exist for the weight: differentiated (here the default) and detached.
    """

    paper = "Lin et al. 2017, Focal Loss for Dense Object Detection, https://arxiv.org/abs/1708.02002"
    bounds = (0.0, math.inf)

    def __init__(
        self, gamma: float = 2.0, class_weights: Sequence[float] | None = None, detach_weight: bool = False
    ) -> None:
        super().__init__()
        self.gamma = number("gamma", gamma, at_least=0)
        self.detach_weight = flag("detach_weight", detach_weight)
        self.class_weights: Tensor | None
        if class_weights is None:
            self.class_weights = None
        else:
            weights = torch.tensor([number("class_weights", float(w), at_least=0) for w in class_weights])
            if weights.numel() < 2:
                raise BadParameter(f"class_weights must have one weight a vocabulary entry, got {weights.numel()}.")
            exact = torch.tensor(list(class_weights), dtype=torch.float64)
            self.register_buffer("class_weights", exact, persistent=False)

    def value(self, log_p: Tensor, batch: Batch) -> Tensor:
        if self.detach_weight:
            return -stop_gradient(complement(log_p) ** self.gamma) * log_p
        return focal_value(log_p, self.gamma)

    def gate(self, log_p: Tensor, batch: Batch) -> Tensor | None:
        return None if self.detach_weight else focal_gate(log_p, self.gamma)

    def weight(self, log_p: Tensor, batch: Batch) -> Tensor | None:
        if self.class_weights is None:
            return None
        if self.class_weights.numel() != batch.vocabulary:
            raise BadInput(
                f"focal has {self.class_weights.numel()} class_weights but the logits have {batch.vocabulary} classes; "
                "give one weight a vocabulary entry."
            )
        return self.class_weights.to(batch.labels.device)[batch.labels]


@register("poly1")
class Poly1(TargetLoss):
    """Cross-entropy with its first Taylor term in (1 - p_t) re-weighted.

        f = -log p_t + epsilon (1 - p_t)
        gate = 1 + epsilon p_t

    Args:
        epsilon: weight of the extra term; 0 is cross-entropy, -1 removes the first term; >= -1 keeps the gate >= 0.

    Hazards:
        - The paper tunes epsilon for each task (2 on ImageNet); 1 is the default of the code ports, not a finding.

    Official code:
        - Only a TensorFlow listing was published; ports of it and optax's poly_loss_cross_entropy agree with this.
    """

    paper = "Leng et al. 2022, PolyLoss, https://arxiv.org/abs/2204.12511"

    def __init__(self, epsilon: float = 1.0) -> None:
        super().__init__()
        self.epsilon = number("epsilon", epsilon)
        self.bounds = (0.0 if self.epsilon >= -1 else -math.inf, math.inf)

    def value(self, log_p: Tensor, batch: Batch) -> Tensor:
        return -log_p + self.epsilon * complement(log_p)


@register("comp_sum")
class CompSum(TargetLoss):
    """Comp-sum losses: the family that joins sum-exponential, cross-entropy, generalized cross-entropy and MAE.

        f = (p_t^(tau - 1) - 1) / (1 - tau),   -log p_t at tau = 1
        gate = p_t^(tau - 1)

    Args:
        tau: >= 0; 0 is the sum-exponential loss 1/p - 1, 1 cross-entropy, 2 MAE, and between 1 and 2 it is generalized
            cross-entropy with q = tau - 1.

    Hazards:
        - For tau < 1 the gate explodes on improbable targets: 1e12 at p_t = 1e-12 and tau = 0, and it overflows for
          larger log-likelihoods (float32 beyond 88 nats).
    """

    paper = "Mao et al. 2023, Cross-Entropy Loss Functions, https://arxiv.org/abs/2304.07288"

    def __init__(self, tau: float = 1.5) -> None:
        super().__init__()
        self.tau = number("tau", tau, at_least=0)
        self.bounds = (0.0, 1 / (self.tau - 1) if self.tau > 1 else math.inf)

    def value(self, log_p: Tensor, batch: Batch) -> Tensor:
        return power_loss(log_p, self.tau - 1)


def power_loss(log_p: Tensor, q: float) -> Tensor:
    """(1 - p^q) / q, and its limit -log p where |q| < 1e-6."""
    return -log_p if abs(q) < 1e-6 else -torch.expm1(q * log_p) / q


@register("taylor_cross_entropy")
class TaylorCrossEntropy(TargetLoss):
    """Cross-entropy's Taylor series in (1 - p_t), cut off: bounded, hence robust to wrong labels.

        f = sum_{k=1..order} (1 - p_t)^k / k
        gate = 1 - (1 - p_t)^order

    Args:
        order: number of terms, >= 1; 1 is MAE, infinity is cross-entropy, the paper uses 2 to 6.

    Hazards:
        - The gate tends to 0 for improbable targets (as order * p_t): a model that fits badly learns slowly.
    """

    paper = (
        "Feng et al. 2020, Can Cross Entropy Loss Be Robust to Label Noise?, https://www.ijcai.org/proceedings/2020/305"
    )

    def __init__(self, order: int = 2) -> None:
        super().__init__()
        self.order = integer("order", order, at_least=1)
        self.bounds = (0.0, sum(1 / k for k in range(1, self.order + 1)))

    def value(self, log_p: Tensor, batch: Batch) -> Tensor:
        q = complement(log_p)
        total = torch.zeros_like(q)
        for k in range(self.order, 0, -1):  # Horner
            total = q * (total + 1 / k)
        return total


@register("mixce")
class MixCE(TargetLoss):
    """MixCE: mixes the forward cross-entropy with an approximation of the reverse one.

        f = -[eta + (1 - eta) sg(p_t)] log p_t
        gate = eta + (1 - eta) p_t

    Args:
        eta: weight of the forward cross-entropy in [0, 1]; 1 is cross-entropy, 0 is dft.

    Hazards:
        - At eta = 0 the value is not monotone in p_t; see dft.
        - Its gradient is eta times that of poly1 with epsilon = (1 - eta) / eta.
    """

    paper = "Zhang et al. 2023, MixCE, https://arxiv.org/abs/2305.16958"
    bounds = (0.0, math.inf)

    def __init__(self, eta: float = 0.5) -> None:
        super().__init__()
        self.eta = number("eta", eta, at_least=0, at_most=1)

    def value(self, log_p: Tensor, batch: Batch) -> Tensor:
        return -(self.eta + (1 - self.eta) * stop_gradient(log_p).exp()) * log_p


@register("tldr")
class TLDR(TargetLoss):
    """Token loss dynamic reweighting: a cosine weight that falls from 2 to 0 as the token is learned.

        f = -(1 + cos(pi p_t)) log p_t, the weight is differentiated
        gate = 1 + cos(pi p_t) - pi p_t sin(pi p_t) log p_t

    Hazards:
        - Improbable targets get twice the gradient of cross-entropy: lower the learning rate or compare at equal
          effective step size.

    Official code:
        - The published dialogue agent divides by the number of non-null tokens, as here.
    """

    paper = "Jiang et al. 2020, TLDR, https://arxiv.org/abs/2003.11963"
    bounds = (0.0, math.inf)

    def value(self, log_p: Tensor, batch: Batch) -> Tensor:
        half = torch.sin(0.5 * math.pi * complement(log_p))  # 1 + cos(pi p) = 2 sin^2(pi (1 - p) / 2)
        return -2 * half * half * log_p


@register("dco")
class DCO(TargetLoss):
    """Direct coverage optimisation: the probability that none of N samples is right, for pass@N.

        f = -log(1 - (1 - p)^N)
        gate = N p (1 - p)^(N - 1) / (1 - (1 - p)^N)
        level token: p = p_t, mean over tokens; level sequence: p = product of p_t, mean over sequences

    Args:
        n_samples: N, the number of samples planned at inference, >= 1; 1 is cross-entropy.
        level: token or sequence (the paper's setting for direct answers).

    Hazards:
        - Once N p is large there is nothing left to learn; choose N as small as the budget.
        - For long sequences log p is about -200 and the sequence level is plain cross-entropy.
        - Use at token level is an adaptation; the paper applies it to answers and to steps. No official code was found.
        - Autograd gives NaN where p rounds to 1; the closed-form gate with its limit 0 is used.
    """

    paper = "Chen et al. 2025, Rethinking Fine-Tuning when Scaling Test-Time Compute, https://arxiv.org/abs/2502.07154"
    bounds = (0.0, math.inf)

    def __init__(self, n_samples: int = 16, level: str = "token") -> None:
        super().__init__()
        self.n_samples = integer("n_samples", n_samples, at_least=1)
        self.level = choice("level", level, ("token", "sequence"))
        if self.level == "sequence":
            self.scope = "sequence"

    def of_log_p(self, log_p: Tensor, batch: Batch) -> Tensor:
        if self.level == "token":
            return super().of_log_p(log_p, batch)
        return batch.spread(super().of_log_p(batch.sequence_sum(log_p), batch))

    def value(self, log_p: Tensor, batch: Batch) -> Tensor:
        if self.n_samples == 1:
            return -log_p
        small = log_p < -30  # 1 - (1 - p)^N = N p to rounding, and p itself may underflow
        usual = -torch.log(-torch.expm1(self.n_samples * log_complement(log_p.clamp_min(-30))))
        return torch.where(small, -log_p - math.log(self.n_samples), usual)

    def gate(self, log_p: Tensor, batch: Batch) -> Tensor:
        if self.n_samples == 1:
            return torch.ones_like(log_p)
        n = self.n_samples
        return torch.exp(log_p + math.log(n) + (n - 1) * log_complement(log_p) + self.value(log_p, batch))
