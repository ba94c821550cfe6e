"""Losses that leave tokens or sequences out."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..base import Statistics, StatisticsLoss, TargetLoss
from ..batch import Batch
from ..numerics import complement, stop_gradient
from ..parameters import choice, integer, number
from ..registry import register


@register("probability_threshold")
class ProbabilityThreshold(TargetLoss):
    """Trains only on tokens whose probability is above (or below) a threshold.

        f = 1[keep] (1 - p_t)  or  1[keep] (-log p_t),   the mean over kept tokens (0 if none)

    Args:
        keep: top (p_t >= threshold) or bottom (p_t <= threshold).
        objective: p (1 - p_t) or logp (-log p_t).
        threshold: in [0, 1].

    Hazards:
        - The mean is over kept tokens, so its denominator depends on the batch: per-token values are scaled by n / kept
          (scope local+stats), and accumulation weighs each micro-batch by its valid tokens.
    """

    paper = "Li et al. 2025, Beyond Log Likelihood, https://arxiv.org/abs/2510.00526"
    scope = "local+stats"
    bounds = (0.0, math.inf)

    def __init__(self, keep: str = "top", objective: str = "p", threshold: float = 0.1) -> None:
        super().__init__()
        self.keep = choice("keep", keep, ("top", "bottom"))
        self.objective = choice("objective", objective, ("p", "logp"))
        self.threshold = number("threshold", threshold, at_least=0, at_most=1)

    def value(self, log_p: Tensor, batch: Batch) -> Tensor:
        return complement(log_p) if self.objective == "p" else -log_p

    def weight(self, log_p: Tensor, batch: Batch) -> Tensor:
        p = log_p.exp()
        kept = (p >= self.threshold if self.keep == "top" else p <= self.threshold).to(log_p.dtype)
        return kept * (batch.n / kept.sum().clamp_min(1))


@register("error_norm_truncation")
class ErrorNormTruncation(StatisticsLoss):
    """Cross-entropy without the tokens whose error norm says that their label is noise.

        e = ||p - Y||_2 = sqrt(sum_p2 - 2 p_t + 1), detached;   f = 1[e <= threshold] (-log p_t)
        truncated tokens stay in the denominator

    Args:
        threshold: largest error norm that is kept, > 0; a uniform model has 1, a confident error sqrt 2, the largest.
        fraction: if given, drop the tokens whose norm is strictly greater than that of rank floor(fraction n) in the
            batch instead of using the threshold (scope global).
        start_iteration: number of training calls before truncation begins, >= 0.

    Hazards:
        - A useful threshold lies between 1 and sqrt 2. Calls are counted, not optimizer steps.

    Official code:
        - The language-model script has a syntax error, counts ignored tokens in the mean and, with a fraction, mixes
          the batch and time axes. The fairseq version divides by all tokens, as here.
    """

    paper = "Li et al. 2023, Error Norm Truncation, https://arxiv.org/abs/2310.00840"
    statistics = ("sum_p2",)
    bounds = (0.0, math.inf)

    def __init__(self, threshold: float = 1.3, fraction: float | None = None, start_iteration: int = 0) -> None:
        super().__init__()
        self.threshold = number("threshold", threshold, above=0)
        self.fraction = None if fraction is None else number("fraction", fraction, at_least=0, below=1)
        self.start_iteration = integer("start_iteration", start_iteration, at_least=0)
        self.iteration: Tensor
        self.register_buffer("iteration", torch.zeros((), dtype=torch.int64))
        if self.fraction is not None:
            self.scope = "global"

    def value(self, statistics: Statistics, batch: Batch) -> Tensor:
        warm = int(self.iteration) < self.start_iteration
        if self.training and warm:
            self.iteration += 1
        if warm:
            return -statistics.log_p
        log_p, sum_p2 = stop_gradient(statistics.log_p), stop_gradient(statistics.sum_p2)
        others = (sum_p2 - (2 * log_p).exp()).clamp_min(0)
        error = (others + complement(log_p).square()).sqrt()
        limit = error.new_tensor(self.threshold)
        if self.fraction is not None:
            limit = error.sort(descending=True).values[math.floor(self.fraction * batch.n)]
        return torch.where(error <= limit, -statistics.log_p, 0.0)


@register("goldfish")
class Goldfish(TargetLoss):
    """Cross-entropy without a pseudo-random 1/k of the positions, so that texts cannot be learned verbatim.

        static: drops the positions start_position, start_position + k, ... of each sequence
        hash-table: drops position i >= h - 1 iff table[(product of the h = context_width ids up to and including i)
                    mod 1 000 003] < 1 / k; table of uniform numbers from the seed 2971215073
        the mean over kept tokens

    Args:
        strategy: hash-table or static.
        k: one in k positions is dropped, >= 2.
        start_position: first dropped position of static, >= 0.
        context_width: h, number of ids that are hashed, >= 1; the code's default is 4, the paper's runs use 13.

    Hazards:
        - Pass `tokens` (the ids at the labels' positions, prompt included). Without them the labels are hashed, and
          windows that reach an ignored label drop nothing.
        - An id 0 in the window makes the product 0, one and the same entry of the table.
        - The mean is over kept tokens, so per-token values are scaled by n / kept.

    Official code:
        - A table drawn on CUDA differs from one drawn on the CPU; here it is always the CPU's. Products overflow int64
          for large vocabularies and wrap, as there. hash-legacy and seeded_random mask whole rows. Windows never cross
          sequences here.
    """

    paper = "Hans et al. 2024, Be like a Goldfish, Don't Memorize!, https://arxiv.org/abs/2406.10209"
    scope = "sequence"
    optional = ("tokens",)
    bounds = (0.0, math.inf)
    table_size = 1_000_003
    table_seed = 2_971_215_073

    def __init__(
        self, strategy: str = "hash-table", k: int = 4, start_position: int = 0, context_width: int = 4
    ) -> None:
        super().__init__()
        self.strategy = choice("strategy", strategy, ("hash-table", "static"))
        self.k = integer("k", k, at_least=2)
        self.start_position = integer("start_position", start_position, at_least=0)
        self.context_width = integer("context_width", context_width, at_least=1)
        self.table: Tensor
        if self.strategy == "hash-table":
            generator = torch.Generator(device="cpu").manual_seed(self.table_seed)
            table = torch.rand(self.table_size, generator=generator, device="cpu")
            self.register_buffer("table", table, persistent=False)

    def dropped(self, tokens: Tensor, sequences: Tensor | None = None) -> Tensor:
        """Which positions are dropped: tokens (B, T) or (T,) int64, negative = unknown -> bool of the same shape.

        `sequences` of the same shape numbers the sequences of packed rows.
        """
        ids = tokens.reshape(-1, tokens.shape[-1])
        groups = torch.zeros_like(ids) if sequences is None else sequences.reshape(ids.shape)
        if self.strategy == "static":
            width = torch.arange(ids.shape[1], device=ids.device)
            new = torch.ones_like(groups, dtype=torch.bool)
            new[:, 1:] = groups[:, 1:] != groups[:, :-1]
            position = width - torch.where(new, width, 0).cummax(1).values
            result = (position >= self.start_position) & ((position - self.start_position) % self.k == 0)
            return result.reshape(tokens.shape)
        h = self.context_width
        result = torch.zeros_like(ids, dtype=torch.bool)
        if ids.shape[1] >= h:
            windows = ids.unfold(1, h, 1)
            whole = (windows >= 0).all(2) & (groups[:, h - 1 :] == groups[:, : ids.shape[1] - h + 1])
            hashed = self.table.to(ids.device)[windows.prod(2) % self.table_size]
            result[:, h - 1 :] = whole & (hashed < 1 / self.k)
        return result.reshape(tokens.shape)

    def value(self, log_p: Tensor, batch: Batch) -> Tensor:
        return -log_p

    def weight(self, log_p: Tensor, batch: Batch) -> Tensor:
        length = batch.shape[-1] if batch.shape else 1
        tokens = batch.context.get("tokens")
        if tokens is None:
            tokens = batch.labels.new_full((batch.shape.numel(),), -1).index_copy(0, batch.index, batch.labels)
        tokens = tokens.reshape(-1, tokens.shape[-1])[:, :length] if tokens.dim() > 1 else tokens[: batch.shape.numel()]
        dropped = self.dropped(tokens.reshape(-1, length).to(torch.int64), batch.all_sequences.reshape(-1, length))
        kept = (~dropped.reshape(-1)[batch.index]).to(log_p.dtype)
        return kept * (batch.n / kept.sum().clamp_min(1))


@register("loss_truncation")
class LossTruncation(TargetLoss):
    """Cross-entropy without the sequences of highest loss, by a running quantile.

        loss of a sequence = mean cross-entropy of its tokens; L = mean over all sequences of keep * loss
        keep iff loss < threshold, the (1 - drop_fraction) quantile of the last `recompute` sequences

    Args:
        drop_fraction: share of sequences that is dropped, in [0, 1).
        min_count: sequences that are seen before any is dropped, >= 0.
        recompute: length of the memory, and how many sequences pass between two computations of the quantile, >= 1.

    Hazards:
        - Stateful: memory and threshold are buffers, saved in checkpoints; each rank has its own unless synchronised.
          The state moves in training mode only.
        - Dropped sequences stay in the denominator.

    Official code:
        - Its README's view(-1, batch) assumes time-major losses; batch-major tensors mix sequences.
    """

    paper = "Kang and Hashimoto 2020, Improved Natural Language Generation via Loss Truncation, https://arxiv.org/abs/2004.14589"
    scope = "sequence"
    bounds = (0.0, math.inf)

    def __init__(self, drop_fraction: float = 0.4, min_count: int = 10_000, recompute: int = 10_000) -> None:
        super().__init__()
        self.drop_fraction = number("drop_fraction", drop_fraction, at_least=0, below=1)
        self.min_count = integer("min_count", min_count, at_least=0)
        self.recompute = integer("recompute", recompute, at_least=1)
        self.memory: Tensor
        self.seen: Tensor
        self.since: Tensor
        self.threshold: Tensor
        self.register_buffer("memory", torch.zeros(self.recompute, dtype=torch.float32))
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))
        self.register_buffer("since", torch.zeros((), dtype=torch.int64))  # sequences since the last quantile
        self.register_buffer("threshold", torch.full((), 1e8, dtype=torch.float32))

    def keep(self, sequence_losses: Tensor) -> Tensor:
        """(S,) losses of the sequences of a call -> (S,) bool; in training mode they enter the memory first."""
        losses = sequence_losses.detach()
        if self.training:
            slots = (self.seen + torch.arange(losses.numel(), device=losses.device)) % self.recompute
            for slot, value in zip(slots.split(self.recompute), losses.split(self.recompute), strict=True):
                self.memory[slot] = value.to(self.memory.dtype)
            self.seen += losses.numel()
            self.since += losses.numel()
            if self.seen >= max(self.min_count, self.recompute) and self.since > self.recompute:
                quantile = torch.quantile(self.memory.double(), 1 - self.drop_fraction)
                self.threshold.copy_(quantile)
                self.since.zero_()
        return losses < self.threshold

    def value(self, log_p: Tensor, batch: Batch) -> Tensor:
        return -log_p

    def weight(self, log_p: Tensor, batch: Batch) -> Tensor:
        kept = self.keep(-batch.sequence_sum(log_p) / batch.lengths)
        return batch.spread(kept.to(log_p.dtype))
