"""Gradients block by block of the vocabulary, for losses whose gradient is gate * (p - onehot).

The logits of the tokens that are not kept are made twice: for the log-sum-exp, and once the gates are known for the
gradient. Every block of the weight's gradient is one product over all tokens, so that nothing is summed over chunks.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import torch
from torch import Tensor

from .head import Head, block_bytes
from .kept import Kept


class Recomputed:
    """Tokens start..n of a head, whose softmax is made twice in blocks of the vocabulary.

    Args:
        head: what the logits are products of.
        labels: (n,) label of each row of the head.
        start: the first token; those before are kept by somebody else.
    """

    def __init__(self, head: Head, labels: Tensor, start: int) -> None:
        self._head, self._labels, self._start = head, labels[start:], start
        self._sorted, self._order = torch.sort(self._labels, stable=True)
        others = torch.full_like(self._labels, -torch.inf, dtype=head.float_dtype)  # log-sum-exp without the label
        z_t = torch.empty_like(others)
        for _, _, logits, rows, cells in self._blocks(_width(head, len(self._labels))):
            z_t[rows] = logits[rows, cells]
            logits[rows, cells] = -torch.inf
            others = torch.logaddexp(others, logits.logsumexp(1))
        self._lse = torch.logaddexp(others, z_t)
        self._others = (others - self._lse).exp()  # 1 - p_t, never as a difference
        self.log_p = torch.where(self._others < 0.5, torch.log1p(-self._others.clamp_max(0.5)), z_t - self._lse)

    def columns(self, kept: Kept | None) -> Iterator[tuple[int, int, Tensor]]:
        """(first, last + 1, (n, w)) blocks of p - onehot of all tokens in the dtype of the products; those of the first
        `start` tokens are `kept`, done already."""
        head, start = self._head, self._start
        n = start + len(self._labels)
        given = None if kept is None else kept.columns(n)
        width = _width(head, n) if kept is None else kept.width
        for v, w, p, rows, cells in self._blocks(width):
            p.sub_(self._lse[:, None]).exp_()
            p[rows, cells] = -self._others[rows]
            block = head.buffers("columns", (n, w - v), head.dtype) if given is None else next(given)[2]
            block[start:].copy_(p)
            yield v, w, block

    def _blocks(self, width: int) -> Iterator[tuple[int, int, Tensor, Tensor, Tensor]]:
        """Range, logits (m, w) in float32, and the rows whose labels are in the range with their columns."""
        head, m = self._head, len(self._labels)
        edges = [*range(0, head.vocabulary, width), head.vocabulary]
        firsts = torch.searchsorted(self._sorted, self._sorted.new_tensor(edges)).tolist()
        for k, (v, w) in enumerate(pairwise(edges)):
            out = head.buffers("recomputed", (m, w - v), head.dtype)
            head.multiply(slice(self._start, None), slice(v, w), out)
            logits = out if out.dtype == head.float_dtype else head.buffers("float", out.shape, head.float_dtype)
            if logits is not out:
                logits.copy_(out)
            rows = self._order[firsts[k] : firsts[k + 1]]
            yield v, w, logits, rows, self._labels[rows] - v


def _width(head: Head, n: int) -> int:
    """Columns of a block of n rows that fits a cache."""
    return min(head.vocabulary, max(256, block_bytes(head.inputs[0].device) // (max(n, 1) * 4)))
