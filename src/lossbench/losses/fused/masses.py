"""Losses of a batch that are functions of sums over each class: nothing of n x K is held."""

from __future__ import annotations

import torch
from torch import Tensor

from ..base import Masses, MassLoss
from ..batch import Batch
from .rows import SOFTMAX, Block, Place, RowGradient, at, spread
from .terms import Term


class MassTerm(Term):
    """A `MassLoss`; holds a number a token and one a word of the vocabulary between the passes."""

    loss: MassLoss
    needs = frozenset({SOFTMAX})
    matrices = 2

    def __init__(self, loss: object, batch: Batch, place: Place, dtype: torch.dtype, upstream: Tensor | None) -> None:
        super().__init__(loss, batch, place, dtype, upstream)
        self.deferred = True
        self._classes, self._label, count = torch.unique(batch.labels, return_inverse=True, return_counts=True)
        self._count = count.to(dtype)
        self._log_p = batch.labels.new_zeros(batch.n, dtype=dtype)
        self._others = batch.labels.new_zeros(batch.vocabulary, dtype=dtype)  # of every class, its own tokens left out
        self._values = batch.labels.new_zeros((), dtype=dtype)
        self._graph: tuple[list[Tensor], Tensor] | None = None

    @property
    def values(self) -> Tensor:
        return self._values

    def observe(self, block: Block) -> None:
        i, j, chosen = self.place.within(block.start, block.stop)
        assert block.p is not None
        self._log_p[i:j] = at(block.log_p, chosen)
        here = spread(torch.ones_like(self._log_p[i:j]), chosen, block.stop - block.start)
        cells = block.labels[:, None]
        block.p.scatter_(1, cells, 0.0)
        self._others += torch.mv(block.p.t(), here)
        block.p.scatter_(1, cells, block.log_p.exp()[:, None])

    def evaluate(self, *, differentiable: bool) -> None:
        if not self.batch.n:
            return
        others = self._others[self._classes]
        absent = self._others.index_fill(0, self._classes, 0.0).sum()
        leaves = [self.place.as_tokens(self._log_p).detach(), others, absent]
        for leaf in leaves:
            leaf.requires_grad_(differentiable)
        with torch.set_grad_enabled(differentiable):
            log_p, others, absent = leaves
            value = self.loss.of_masses(Masses(others, absent, self._label, self._count, log_p), self.batch)
        self._values = value.detach()
        self._graph = (leaves, value) if differentiable else None

    def backpropagate(self, upstream: Tensor) -> None:
        super().backpropagate(upstream)
        if self._graph is None:
            return
        leaves, value = self._graph
        self._graph = None
        found = torch.autograd.grad(value, leaves, upstream.to(value.dtype), allow_unused=True)
        log_p, others, absent = (
            torch.zeros_like(leaf) if slope is None else slope for leaf, slope in zip(leaves, found, strict=True)
        )
        self._slope = self.place.as_rows(log_p)  # d value / d log p_t
        self._slopes = absent.expand(self.batch.vocabulary).index_copy(0, self._classes, others)  # d value / d p_ij

    def gradient(self, block: Block, out: RowGradient) -> None:
        i, j, chosen = self.place.within(block.start, block.stop)
        if i == j or self.upstream is None:
            return
        assert block.p is not None
        size = len(out.gate)
        out.gate -= spread(self._slope[i:j], chosen, size)
        here = spread(torch.ones_like(self._slope[i:j]), chosen, size)
        slopes = self._slopes * here[:, None]
        slopes.scatter_(1, block.labels[:, None], 0.0)
        out.of_p -= torch.linalg.vecdot(block.p, slopes, dim=1)
        out.add("of_p_matrix", slopes)
