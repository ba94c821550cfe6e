"""Gradients block by block of the vocabulary, for losses whose gradient is gate * (p - onehot).

Where the weight is trained, the logits of the tokens that are not kept are made twice: for the log-sum-exp, and for the
gradient when the gates are known. Every block of the weight's gradient is one product over all tokens, so that nothing
is summed over chunks. Where the weight is frozen, they are made once.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import torch
from torch import Tensor

from .head import ROWS, Head, add_product, block_bytes
from .kept import Kept

TOKENS, COLUMNS = 2048, 1024  # of a block where the weight is frozen: at most, and at least


def online(head: Head, labels: Tensor) -> tuple[Tensor, list[Tensor]]:
    """log p of the labels (n,), and (p - onehot) @ weight (n, H) for every weight, in one pass over the vocabulary.

    A block of logits is multiplied with the weight's rows as soon as it is made, relative to the largest logit so far;
    what was added up before is scaled when a larger one comes, as in FlashAttention (Dao et al. 2022,
    https://arxiv.org/abs/2205.14135). The label's own logit stays apart: 1 - p_t is never a difference.

    Returns:
        Everything in float32, or in float64 for a float64 head.
    """
    log_p = torch.empty_like(labels, dtype=head.float_dtype)
    means = [torch.zeros_like(x, dtype=head.float_dtype) for x in head.inputs]
    for start in range(0, head.n, TOKENS):
        rows = slice(start, start + TOKENS)
        log_p[rows] = _online(head, labels[rows], start, [mean[rows] for mean in means])
    return log_p, means


def _online(head: Head, labels: Tensor, start: int, means: list[Tensor]) -> Tensor:
    """Add (p - onehot) @ weight of the tokens from `start` to `means`, zeros so far -> log p of their labels."""
    top = torch.full_like(labels, torch.finfo(head.float_dtype).min, dtype=head.float_dtype)
    total, z_t = torch.zeros_like(top), torch.empty_like(top)  # total: of exp(z - top) over all tokens but the label
    width = max(COLUMNS, 2 * _width(head, len(labels)))  # narrower ones would be added up too often
    for v, w, logits, rows, cells in _Columns(head, labels, start).blocks(width):
        z_t[rows] = logits[rows, cells]
        logits[rows, cells] = -torch.inf
        higher = torch.maximum(top, logits.amax(1))
        fall = torch.exp(top - higher)
        p = logits.sub_(higher[:, None]).exp_()
        total.mul_(fall).add_(p.sum(1))
        factor = p if p.dtype == head.dtype else head.buffers("columns", tuple(p.shape), head.dtype).copy_(p)
        for mean, weight in zip(means, head.weights, strict=True):
            add_product(mean.mul_(fall[:, None]), factor, weight[v:w], head.buffers)
        top = higher
    others = top + total.log()
    lse = torch.logaddexp(others, z_t)
    log_p, rest = _of_label(others, z_t, lse)
    scale = torch.exp(top - lse)[:, None]
    for mean, weight in zip(means, head.weights, strict=True):
        mean.mul_(scale)
        for some, ids, factors in zip(mean.split(ROWS), labels.split(ROWS), rest.split(ROWS), strict=True):
            some.sub_(weight.index_select(0, ids) * factors[:, None])
    return log_p


class Recomputed:
    """Tokens start..n of a head, whose softmax is made twice in blocks of the vocabulary.

    Args:
        head: what the logits are products of.
        labels: (n,) label of each row of the head.
        start: the first token; those before are kept by somebody else.
    """

    def __init__(self, head: Head, labels: Tensor, start: int) -> None:
        self._head, self._start = head, start
        self._columns = _Columns(head, labels[start:], start)
        others = torch.full_like(labels[start:], -torch.inf, dtype=head.float_dtype)  # log-sum-exp without the label
        z_t = torch.empty_like(others)
        for _, _, logits, rows, cells in self._columns.blocks(_width(head, len(others))):
            z_t[rows] = logits[rows, cells]
            logits[rows, cells] = -torch.inf
            others = torch.logaddexp(others, logits.logsumexp(1))
        self._lse = torch.logaddexp(others, z_t)
        self.log_p, self._others = _of_label(others, z_t, self._lse)

    def columns(self, kept: Kept | None) -> Iterator[tuple[int, int, Tensor]]:
        """(first, last + 1, (n, w)) blocks of p - onehot of all tokens in the dtype of the products; those of the first
        `start` tokens are `kept`, done already."""
        head, start = self._head, self._start
        n = start + len(self._lse)
        given = None if kept is None else kept.columns(n)
        width = _width(head, n) if kept is None else kept.width
        for v, w, p, rows, cells in self._columns.blocks(width):
            p.sub_(self._lse[:, None]).exp_()
            p[rows, cells] = -self._others[rows]
            block = head.buffers("columns", (n, w - v), head.dtype) if given is None else next(given)[2]
            block[start:].copy_(p)
            yield v, w, block


class _Columns:
    """Logits of the tokens of a head from `start`, as many as there are labels, in blocks of the vocabulary."""

    def __init__(self, head: Head, labels: Tensor, start: int) -> None:
        self._head, self._labels, self._start = head, labels, start
        self._sorted, self._order = torch.sort(labels, stable=True)

    def blocks(self, width: int) -> Iterator[tuple[int, int, Tensor, Tensor, Tensor]]:
        """Range, logits (m, w) in float32, and the rows whose labels are in the range with their columns."""
        head, m = self._head, len(self._labels)
        edges = [*range(0, head.vocabulary, width), head.vocabulary]
        firsts = torch.searchsorted(self._sorted, self._sorted.new_tensor(edges)).tolist()
        for k, (v, w) in enumerate(pairwise(edges)):
            out = head.buffers("recomputed", (m, w - v), head.dtype)
            head.multiply(slice(self._start, self._start + m), slice(v, w), out)
            logits = out if out.dtype == head.float_dtype else head.buffers("float", out.shape, head.float_dtype)
            if logits is not out:
                logits.copy_(out)
            rows = self._order[firsts[k] : firsts[k + 1]]
            yield v, w, logits, rows, self._labels[rows] - v


def _of_label(others: Tensor, z_t: Tensor, lse: Tensor) -> tuple[Tensor, Tensor]:
    """log p_t and 1 - p_t (n,) from the log-sum-exp of all other logits, never from a difference of near numbers."""
    rest = (others - lse).exp()
    return torch.where(rest < 0.5, torch.log1p(-rest.clamp_max(0.5)), z_t - lse), rest


def _width(head: Head, n: int) -> int:
    """Columns of a block of n rows that fits a cache."""
    return min(head.vocabulary, max(256, block_bytes(head.inputs[0].device) // (max(n, 1) * 4)))
