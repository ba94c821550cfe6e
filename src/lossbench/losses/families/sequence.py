"""Losses that look at the other tokens of the same sequence; they never look into another one."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from ..base import RowLoss
from ..batch import Batch
from ..errors import BadParameter
from ..numerics import complement, pick
from ..parameters import choice, flag, integer, number
from ..registry import register


@register("unlikelihood")
class Unlikelihood(RowLoss):
    """Token-level unlikelihood: cross-entropy plus a penalty on the earlier labels of the sequence.

        f = -log p_t + alpha sum_{c in C} -log(max(1 - p_c, 1e-5)),   C = earlier labels without the target
        gradient (p - Y) + alpha sum_c p_c / (1 - p_c) (delta_c - p)

    Args:
        alpha: weight of the penalty, >= 0; 0 is cross-entropy.
        candidates: previous_context.

    Hazards:
        - Pushes down earlier tokens even where repeating them is right; pairs grow with the square of the length.

    Official code:
        - The pad id is always a negative there, and contexts of different sequences of a flattened batch leak into each
          other.
    """

    paper = "Welleck et al. 2020, Neural Text Generation with Unlikelihood Training, https://arxiv.org/abs/1908.04319"
    scope = "sequence"
    cost = "that of cross-entropy and one gather for each pair of a token and an earlier distinct one"
    bounds = (0.0, math.inf)

    def __init__(self, alpha: float = 1.0, candidates: str = "previous_context") -> None:
        super().__init__()
        self.alpha = number("alpha", alpha, at_least=0)
        self.candidates = choice("candidates", candidates, ("previous_context",))

    def value(self, rows: Tensor, batch: Batch) -> Tensor:
        log_p = rows.log_softmax(1)
        later, earlier = batch.previous_pairs()
        negative = batch.first_occurrence()[earlier] & (batch.labels[later] != batch.labels[earlier])
        later, token = later[negative], batch.labels[earlier[negative]]
        penalty = -complement(log_p[later, token]).clamp_min(1e-5).log()
        return (-pick(log_p, batch.labels)).index_add(0, later, self.alpha * penalty)


@register("scale_grad")
class ScaleGrad(RowLoss):
    """ScaleGrad: probabilities of tokens that are new in the sequence are scaled down, so that novelty must be learned.

        q_j = p_j (gamma if j is not among the earlier labels else 1),   f = -log((q_t + eps) / (sum_j q_j + V eps))

    Args:
        gamma: in (0, 1]; 1 is cross-entropy (up to eps); the paper uses 0.2 to 0.8.
        eps: added to every q_j, >= 0.

    Hazards:
        - eps caps the value near -log(eps) and takes the gradient of targets with p_t below it.

    Official code:
        - Needs sequences not longer than V and a batch of one.
    """

    paper = "Lin et al. 2021, Straight to the Gradient, https://arxiv.org/abs/2106.07207"
    scope = "sequence"
    cost = "that of cross-entropy and one gather for each pair of a token and an earlier distinct one"
    bounds = (0.0, math.inf)

    def __init__(self, gamma: float = 0.2, eps: float = 1e-8) -> None:
        super().__init__()
        self.gamma = number("gamma", gamma, above=0, at_most=1)
        self.eps = number("eps", eps, at_least=0)

    def value(self, rows: Tensor, batch: Batch) -> Tensor:
        log_p = rows.log_softmax(1)
        later, earlier = batch.previous_pairs()
        first = batch.first_occurrence()
        later, earlier = later[first[earlier]], earlier[first[earlier]]
        p = log_p[later, batch.labels[earlier]].exp()
        seen = log_p.new_zeros(batch.n).index_add(0, later, p)
        log_target = pick(log_p, batch.labels)
        factor = torch.where(first, self.gamma, 1.0).to(log_p.dtype)
        # log(p factor + eps), where p underflows in float32 or eps is 0: by logaddexp
        log_eps = log_p.new_tensor(self.eps).log()
        numerator = torch.logaddexp(log_target + factor.log(), log_eps)
        whole = self.gamma + (1 - self.gamma) * seen + batch.vocabulary * self.eps
        return whole.log() - numerator


@register("eisl")
class EISL(RowLoss):
    """Edit-invariant sequence loss: each n-gram of the target may be produced anywhere in the output.

        C_oj = max(log p_o(y_j), clamp);  t_ab = mean_k C_{a+k, b+k} over n consecutive k
        L_n = -mean_b sum_a softmax_a(t_ab / tau) t_ab,   L = mean over n, mean over sequences

    Args:
        ngrams: lengths n, e.g. [1, 2, 3]; longer than the sequence: left out for that sequence.
        gumbel: add Gumbel noise to t inside the softmax, as the authors do; the loss is then random.
        tau: temperature of that softmax, > 0.
        clamp: lower limit of log p, < 0; below it there is no gradient.

    Hazards:
        - Memory of T^2 for each sequence. Scores of a causal model are conditioned on the true prefix.

    Official code:
        - Gumbel noise always on, no padding mask, CUDA hard-coded. The weight of its cross-entropy is separate.
    """

    paper = "Liu et al. 2022, Don't Take It Literally: An Edit-Invariant Sequence Loss for Text Generation, https://arxiv.org/abs/2106.15078"
    scope = "sequence"
    cost = "that of cross-entropy and T x T scores for each sequence and n"

    def __init__(
        self, ngrams: Sequence[int] = (2,), gumbel: bool = False, tau: float = 1.0, clamp: float = -20.0
    ) -> None:
        super().__init__()
        if isinstance(ngrams, int | str) or not list(ngrams):
            raise BadParameter(f"ngrams must be a list of lengths such as [1, 2, 3], got {ngrams!r}.")
        self.ngrams = tuple(integer("ngrams", n, at_least=1) for n in ngrams)
        self.gumbel = flag("gumbel", gumbel)
        self.tau = number("tau", tau, above=0)
        self.clamp = number("clamp", clamp, below=0)
        self.bounds = (0.0, -self.clamp)

    def value(self, rows: Tensor, batch: Batch) -> Tensor:
        log_p = rows.log_softmax(1)
        losses = []
        for s in range(batch.n_sequences):
            member = (batch.sequence == s).nonzero().squeeze(1)
            score = log_p[member][:, batch.labels[member]].clamp_min(self.clamp)
            terms = [self._of_ngrams(score, n) for n in self.ngrams if n <= len(member)]
            losses.append(torch.stack(terms).mean() if terms else score.sum() * 0)
        return batch.spread(torch.stack(losses))

    def _of_ngrams(self, score: Tensor, n: int) -> Tensor:
        size = score.shape[0] - n + 1
        window = torch.stack([score[k : k + size, k : k + size] for k in range(n)]).mean(0)
        attention = window
        if self.gumbel:
            uniform = torch.rand_like(window).clamp_min(torch.finfo(window.dtype).tiny)
            attention = window - torch.log(-torch.log(uniform))
        return -((attention / self.tau).softmax(0) * window).sum(0).mean()
