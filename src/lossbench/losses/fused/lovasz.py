"""Lovasz-softmax from the few pairs of a token and a class that can have a gradient.

The Jaccard loss of the first k errors of a class is 1 from its last foreground token on. Background tokens whose error
p_ic is below the smallest error of a foreground token of c therefore have no weight, and only the others are sorted:
one list for all classes, no loop over them.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..batch import Batch
from ..families.region import LovaszSoftmax
from .rows import SOFTMAX, Block, Place, RowGradient, at, spread
from .terms import Term


class LovaszTerm(Term):
    """`lovasz_softmax` over the classes that occur; holds n x K probabilities between the passes."""

    loss: LovaszSoftmax
    needs = frozenset({SOFTMAX})
    linear_in_p = True

    def __init__(
        self, loss: LovaszSoftmax, batch: Batch, place: Place, dtype: torch.dtype, upstream: Tensor | None
    ) -> None:
        super().__init__(loss, batch, place, dtype, upstream)
        self._classes, self._label = torch.unique(place.as_rows(batch.labels), return_inverse=True)
        self._p: Tensor | None = batch.labels.new_empty(batch.n, len(self._classes), dtype=dtype)
        self._log_p, self._error = (batch.labels.new_empty(batch.n, dtype=dtype) for _ in range(2))
        self._values = batch.labels.new_zeros((), dtype=dtype)

    @property
    def values(self) -> Tensor:
        return self._values

    def observe(self, block: Block) -> None:
        i, j, chosen = self.place.within(block.start, block.stop)
        assert block.p is not None and self._p is not None
        self._p[i:j] = at(block.p.index_select(1, self._classes), chosen)
        self._log_p[i:j] = at(block.log_p, chosen)
        self._error[i:j] = at(block.others, chosen)

    def evaluate(self, *, differentiable: bool) -> None:
        p, self._p = self._p, None
        if not self.batch.n:
            return
        assert p is not None
        row, column, p_pair, slope, self._values = _pairs(p, self._label, self._error)
        n = self.batch.n
        self._gate = -self._log_p.exp() * slope[:n]  # of the pair of a token and its label
        self._row, self._column = row, column
        self._cell = p_pair * slope[n:]
        self._of_p = torch.zeros_like(self._gate).index_add_(0, row, self._cell)

    def backpropagate(self, upstream: Tensor) -> None:
        super().backpropagate(upstream)
        if not self.batch.n:
            return
        order = torch.argsort(self._row, stable=True)  # by rows, so that a block has a range of the cells
        self._row, self._column = self._row[order], self._classes[self._column[order]]
        self._cell = self._cell[order] * upstream
        self._gate, self._of_p = self._gate * upstream, self._of_p * upstream
        self._first = torch.searchsorted(self._row, torch.arange(self.batch.n + 1, device=self._row.device)).tolist()

    def gradient(self, block: Block, out: RowGradient) -> None:
        i, j, chosen = self.place.within(block.start, block.stop)
        if i == j or self.upstream is None:
            return
        size = len(out.gate)
        out.gate += spread(self._gate[i:j], chosen, size)
        out.of_p -= spread(self._of_p[i:j], chosen, size)
        here = slice(self._first[i], self._first[j])
        rows = self._row[here] - i
        out.cells.append((rows if chosen is None else chosen[rows], self._column[here], self._cell[here]))


def _pairs(p: Tensor, label: Tensor, error: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """The background pairs that count: row, column, probability (m,); d loss / d p of the n foreground pairs and then
    of these; and the loss.

    Args:
        p: (n, K) probabilities of the classes that occur.
        label: (n,) column of each token's label.
        error: (n,) 1 - p of the label.
    """
    n, k = p.shape
    smallest = torch.full((k,), torch.inf, dtype=p.dtype, device=p.device).scatter_reduce_(0, label, error, "amin")
    counts = p > smallest
    counts.scatter_(1, label[:, None], False)
    row, column = counts.nonzero(as_tuple=True)
    p_pair = p[row, column]
    cls, errors = torch.cat([label, column]), torch.cat([error, p_pair])
    order = torch.argsort(errors, descending=True, stable=True)
    order = order[torch.argsort(cls[order], stable=True)]  # class by class, errors decreasing
    cls = cls[order]
    foreground = (order < n).to(p.dtype)
    seen = foreground.double().cumsum(0)  # whole numbers, exact
    position = torch.arange(1, len(order) + 1, dtype=torch.float64, device=p.device)
    before = torch.searchsorted(cls, torch.arange(k, device=p.device))  # pairs of the classes before
    seen_before = torch.cat([seen.new_zeros(1), seen])[before]
    seen = seen - seen_before[cls]
    wrong = position - before[cls] - seen
    size = torch.bincount(label, minlength=k)[cls]
    union = size + wrong
    step = torch.where(foreground > 0, 1 / union, (size - seen) / (union * (union - 1).clamp_min(1))).to(p.dtype)
    loss = (errors[order] * step).sum() / k
    slope = torch.empty_like(errors).index_copy_(0, order, torch.where(foreground > 0, -step, step) / k)
    return row, column, p_pair, slope, loss
