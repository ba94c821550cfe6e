"""Losses that look at a few columns of all tokens: those of the labels, or of the numbers.

The columns of K classes and one more, the log-sum-exp of all others, are a small row of logits with the same log
probabilities. A loss that reads nothing else is computed on these n x (K + 1) numbers as it stands.
"""

from __future__ import annotations

import copy
from dataclasses import replace

import torch
from torch import Tensor

from ..base import BatchLoss, Columns, RowLoss
from ..batch import Batch
from ..errors import BadInput
from ..families.ranking import ContrastiveToken
from ..families.region import LovaszSoftmax
from ..families.sequence import EISL, ScaleGrad, Unlikelihood
from ..families.transport import NumberTokenLoss
from .rows import LOGITS, SOFTMAX, Block, Place, RowGradient, at, spread
from .terms import Term

OF_LABELS = (ContrastiveToken, EISL, ScaleGrad, Unlikelihood)  # row losses that read the columns of labels


def reads_columns(loss: object) -> bool:
    """Whether a loss reads nothing but columns that are known before any logits are."""
    if type(loss) is LovaszSoftmax and loss.classes == "all":
        return False
    plain = isinstance(loss, BatchLoss) and type(loss).per_token is BatchLoss.per_token
    return plain or type(loss) in (LovaszSoftmax, *OF_LABELS, NumberTokenLoss)


class ColumnsTerm(Term):
    """A loss on the columns that it reads; holds n x (K + 1) numbers, and what the formula makes of them."""

    loss: BatchLoss | RowLoss
    needs = frozenset({LOGITS, SOFTMAX})

    def __init__(self, loss: object, batch: Batch, place: Place, dtype: torch.dtype, upstream: Tensor | None) -> None:
        super().__init__(loss, batch, place, dtype, upstream)
        self.deferred = True
        self.classes, self.loss, self.small = _smaller(self.loss, batch)
        k = len(self.classes)
        self._others = k < batch.vocabulary
        self._columns = batch.labels.new_zeros(batch.n, k + self._others, dtype=dtype)
        self._rest = batch.labels.new_zeros(batch.n, dtype=dtype)  # probability of all other tokens
        self._absent = torch.ones(batch.vocabulary, dtype=dtype, device=batch.labels.device)
        self._absent[self.classes] = 0.0
        self._graph: tuple[Tensor, Tensor] | None = None
        if isinstance(loss, BatchLoss):
            self._values = self._values.sum()

    @property
    def values(self) -> Tensor:
        return self._values if not self._values.dim() else super().values

    def observe(self, block: Block) -> None:
        i, j, chosen = self.place.within(block.start, block.stop)
        assert block.logits is not None and block.p is not None
        k = len(self.classes)
        self._columns[i:j, :k] = at(block.logits.index_select(1, self.classes), chosen)
        if self._others:
            rest = torch.mv(block.p, self._absent).clamp_min(torch.finfo(self.dtype).tiny)
            self._rest[i:j] = at(rest, chosen)
            self._columns[i:j, k] = at(block.lse + rest.log(), chosen)

    def evaluate(self, *, differentiable: bool) -> None:
        if not self.batch.n:
            return
        columns = self.place.as_tokens(self._columns).detach().requires_grad_(differentiable)
        with torch.set_grad_enabled(differentiable):
            values = self._of(columns)
        self._values = values.detach() if not values.dim() else self.place.as_rows(values.detach())
        self._graph = (columns, values) if differentiable and values.requires_grad else None

    def _of(self, columns: Tensor) -> Tensor:
        """(n,) values, or the one of a batch loss, from the small rows of logits."""
        if type(self.loss).per_token is not BatchLoss.per_token:
            return self.loss.per_token(columns, self.small)
        seen = replace(Columns.of(columns, self.small.labels), classes=self.classes)
        return self.loss.value(seen, self.batch)  # type: ignore[arg-type]

    def backpropagate(self, upstream: Tensor) -> None:
        super().backpropagate(upstream)
        self._slopes = torch.zeros_like(self._columns)
        if self._graph is not None:
            columns, values = self._graph
            self._graph = None
            (slopes,) = torch.autograd.grad(values, columns, upstream.to(values.dtype))
            self._slopes = self.place.as_rows(slopes)

    def gradient(self, block: Block, out: RowGradient) -> None:
        i, j, chosen = self.place.within(block.start, block.stop)
        if i == j or self.upstream is None:
            return
        assert block.p is not None
        b, k = block.stop - block.start, len(self.classes)
        additions = spread(self._slopes[i:j, :k], chosen, b)
        if self._others:
            share = spread(self._slopes[i:j, k] / self._rest[i:j], chosen, b)
            out.of_p += share
            additions = additions - block.p.index_select(1, self.classes) * share[:, None]
        out.columns.append((self.classes, additions))


def _smaller(loss: BatchLoss | RowLoss, batch: Batch) -> tuple[Tensor, BatchLoss | RowLoss, Batch]:
    """The classes whose columns a loss reads, ascending, and the loss and the batch with their numbers for ids."""
    wanted = [batch.labels]
    context = dict(batch.context)
    if isinstance(loss, NumberTokenLoss):
        wanted.append(context["token_values"].isfinite().nonzero().squeeze(1))
    if isinstance(loss, LovaszSoftmax) and not isinstance(loss.classes, str):
        if max(loss.classes) >= batch.vocabulary:
            raise BadInput(
                f"classes names the token {max(loss.classes)} but the logits have {batch.vocabulary} classes."
            )
        wanted.append(batch.labels.new_tensor(loss.classes))
    classes = torch.unique(torch.cat(wanted))
    if isinstance(loss, NumberTokenLoss):
        rest = context["token_values"].new_full((1,), torch.nan)
        context["token_values"] = torch.cat(
            [context["token_values"][classes], rest][: 2 - (len(classes) == batch.vocabulary)]
        )
    if isinstance(loss, LovaszSoftmax) and not isinstance(loss.classes, str):
        chosen = torch.searchsorted(classes, batch.labels.new_tensor(loss.classes))
        loss = copy.copy(loss)
        loss.classes = tuple(chosen.tolist())
    return classes, loss, replace(batch, labels=torch.searchsorted(classes, batch.labels), context=context)
