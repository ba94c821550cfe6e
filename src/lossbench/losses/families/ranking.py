"""Losses that rank tokens against each other; each is an addition to cross-entropy."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from ..base import RowLoss
from ..batch import Batch
from ..errors import BadInput, BadParameter
from ..numerics import pick
from ..parameters import integer, number
from ..registry import register


@register("contrastive_token")
class ContrastiveToken(RowLoss):
    """Contrastive token loss: the target's logit against those of the tokens shortly before it.

        f = log(1 + sum_{s in window} exp(z_{y_s} - z_{y_t})),   mean over valid tokens of the first ct_length positions
        window = the M positions before t, without ignored labels and labels equal to y_t, duplicates counted

    Args:
        ct_length: positions at the start of each sequence that take part: a share of its length, ignored positions
            included, if a fraction in (0, 1], else a whole number.
        preceding_m: M, likewise a share of ct_length or a whole number.

    Hazards:
        - Pushes down recent tokens even where repeating them is right.
        - Shares are of the padded length, as in the authors' code: more padding lets more tokens take part.
        - The mean is over the tokens that take part, so per-token values are scaled by n / their number.

    Official code:
        - Label 0 is treated as padding there. The authors add the term to cross-entropy with weight 1.
    """

    paper = "Jiang et al. 2022, A Simple Contrastive Learning Objective for Alleviating Neural Text Degeneration, https://arxiv.org/abs/2205.02517"
    scope = "sequence"
    cost = "that of cross-entropy and one gather for each pair of a token and one of the M before it"
    bounds = (0.0, math.inf)
    auxiliary = "it only compares the target with the tokens shortly before it and says nothing of the rest"

    def __init__(self, ct_length: float = 0.25, preceding_m: float = 0.5) -> None:
        super().__init__()
        self.ct_length = _share_or_count("ct_length", ct_length)
        self.preceding_m = _share_or_count("preceding_m", preceding_m)

    def value(self, rows: Tensor, batch: Batch) -> Tensor:
        limit = _resolve(self.ct_length, batch.full_lengths)
        window = _resolve(self.preceding_m, limit)
        part = batch.position < limit
        later, earlier = batch.previous_pairs()
        distance = batch.position[later] - batch.position[earlier]
        chosen = part[later] & (distance <= window[later]) & (batch.labels[later] != batch.labels[earlier])
        later, token = later[chosen], batch.labels[earlier[chosen]]
        gap = rows[later, token] - pick(rows, batch.labels)[later]
        # log(1 + sum exp gap) shifted by the largest of 0 and the gaps
        top = gap.detach().new_zeros(batch.n).scatter_reduce(0, later, gap.detach(), "amax")
        total = torch.exp(-top).index_add(0, later, torch.exp(gap - top[later]))
        scale = part.to(rows.dtype) * (batch.n / part.sum().clamp_min(1))
        return scale * (top + total.log())


def _share_or_count(name: str, value: float) -> float:
    if isinstance(value, float) and value > 1 and not value.is_integer():
        raise BadParameter(f"{name} must be a share in (0, 1] or a whole number of tokens, got {value!r}.")
    if isinstance(value, float) and value <= 1:
        return number(name, value, above=0)
    return integer(name, int(value) if isinstance(value, float) else value, at_least=1)


def _resolve(value: float, length: Tensor) -> Tensor:
    """Share of a length (floats up to 1) or a number of tokens (int) -> tokens, at least 1."""
    if isinstance(value, int):
        return torch.full_like(length, value)
    return (value * length.double()).round().to(length.dtype).clamp_min(1)


@register("token_order_prediction")
class TokenOrderPrediction(RowLoss):
    """Token order prediction: a second head ranks the coming tokens by how soon they come (ListNet).

        score of token v at position t = W - distance to its next occurrence (0: the very next token), -inf beyond W
        f = cross-entropy between softmax(scores) and softmax(head logits); mean over valid tokens

    The value is that of the ranking term alone; the paper adds it to cross-entropy with weight 1. `logits` may be left
    out: the loss reads `head_logits` (..., V).

    Args:
        window_size: W, how far ahead tokens are ranked, >= 1.

    Hazards:
        - Trains the second head (and the trunk through it), never the LM head: use it beside cross-entropy.
        - `tokens` (..., T + W) holds the coming tokens, `tokens[t]` being the one that position t predicts; without it
          the labels serve and the last W positions see less far.

    Official code:
        - Built in float16 there; document boundaries are not handled, here a window ends with its sequence.
    """

    paper = "Zuhri et al. 2025, Predicting the Order of Upcoming Tokens, https://arxiv.org/abs/2508.19228"
    scope = "sequence"
    needs = ("head_logits",)
    optional = ("tokens",)
    cost = "that of cross-entropy on the second head and n x (W + 1) gathered scores"
    bounds = (0.0, math.inf)
    auxiliary = "it trains the second head only"

    def __init__(self, window_size: int = 256) -> None:
        super().__init__()
        self.window_size = integer("window_size", window_size, at_least=1)

    def forward(self, logits: Tensor | None = None, labels: Tensor | None = None, **keywords: Any) -> Tensor:
        """As `Loss`, on `head_logits`; without labels every position counts and `tokens` gives the labels."""
        head_logits = keywords.pop("head_logits", None)
        if head_logits is None:
            super()._require({})
        tokens = keywords.get("tokens")
        if labels is None:
            if tokens is None:
                raise BadInput("token_order_prediction needs labels or tokens, and was given neither.")
            labels = tokens[..., : head_logits.shape[-2]]
        return super().forward(head_logits, labels, **keywords)

    def _require(self, present: Any) -> None:
        """The head's logits stand in for the logits, see `forward`."""

    def value(self, rows: Tensor, batch: Batch) -> Tensor:
        tokens, kept = self._upcoming(batch)
        distance = torch.arange(self.window_size + 1, device=rows.device)
        score = (self.window_size - distance).to(rows.dtype).expand(kept.shape).masked_fill(~kept, -math.inf)
        any_kept = kept.any(1, keepdim=True)
        wanted = torch.where(any_kept, score, 0.0).softmax(1) * kept
        log_p = rows.gather(1, tokens) - rows.logsumexp(1, keepdim=True)
        return -(wanted * log_p).sum(1)

    def _upcoming(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """(n, W + 1) coming tokens and which of them count: inside the sequence, first occurrence, known."""
        length = batch.shape[-1] if batch.shape else 1
        given = batch.context.get("tokens")
        if given is None:
            given = batch.labels.new_full((batch.shape.numel(),), -1).index_copy(0, batch.index, batch.labels)
            given = given.reshape(-1, length)
        tokens = given.reshape(-1, given.shape[-1]).to(torch.int64)
        width = tokens.shape[1]
        groups = batch.all_sequences.reshape(-1, length)
        groups = torch.cat([groups, groups[:, -1:].expand(-1, width - length)], 1).reshape(-1)
        flat = tokens.reshape(-1)
        previous = _previous_occurrence(groups * (batch.vocabulary + 1) + flat.clamp_min(-1) + 1)
        column = batch.index % length
        start = (batch.index // length) * width + column
        ahead = torch.arange(self.window_size + 1, device=flat.device)
        inside = column[:, None] + ahead < width
        where = torch.where(inside, start[:, None] + ahead, start[:, None])
        upcoming = flat[where]
        known = (upcoming >= 0) & (upcoming < batch.vocabulary)
        kept = inside & known & (groups[where] == groups[start][:, None]) & (previous[where] < start[:, None])
        return torch.where(known, upcoming, 0), kept


def _previous_occurrence(key: Tensor) -> Tensor:
    """(n,) index of the last earlier entry with the same key, -1 if there is none."""
    order = torch.argsort(key, stable=True)
    same = key[order][1:] == key[order][:-1]
    return torch.full_like(key, -1).index_copy(0, order[1:], torch.where(same, order[:-1], -1))
