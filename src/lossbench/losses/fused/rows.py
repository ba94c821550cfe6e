"""A few rows of logits while they are in the cache: their softmax, and the gradient that the terms put together."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from ..batch import Batch
from ..context import CONTEXT
from .head import Buffers

CELLS_AT_ONCE = 4096  # of a sparse gradient, in products with rows of the weight
LOGITS, SHIFTED, SOFTMAX = "logits", "logits minus the row's maximum", "softmax"  # what a term may ask a block for


@dataclass
class Block:
    """Rows start..stop of the head, b of them; which of the matrices are there depends on what the terms asked for."""

    start: int
    stop: int
    labels: Tensor  # (b,)
    rows: Tensor  # (b, V) a piece of the chunk's logits, where the gradient is written to in the end
    logits: Tensor | None = None  # (b, V) as they came
    shifted: Tensor | None = None  # (b, V) minus the maximum of the row
    p: Tensor | None = None  # (b, V)
    log_p: Tensor = field(default_factory=lambda: torch.empty(0))  # (b,) of the label, as are all below
    z_t: Tensor = field(default_factory=lambda: torch.empty(0))
    lse: Tensor = field(default_factory=lambda: torch.empty(0))
    top: Tensor = field(default_factory=lambda: torch.empty(0))
    others: Tensor = field(default_factory=lambda: torch.empty(0))  # 1 - p_t

    @classmethod
    def of(
        cls, start: int, labels: Tensor, rows: Tensor, needs: Collection[str], buffers: Buffers, *, keep: bool = False
    ) -> Block:
        """A block of logits `rows` with what `needs` names; the softmax takes their memory unless `keep` is set."""
        block = cls(start, start + rows.shape[0], labels, rows)
        if SOFTMAX not in needs:
            block.logits = rows
            return block
        shape, p = tuple(rows.shape), rows
        if keep:
            block.logits, p = rows, buffers("p", shape, rows.dtype)
        elif LOGITS in needs:
            block.logits = buffers("raw", shape, rows.dtype).copy_(rows)
        block.top = rows.amax(1)
        if SHIFTED in needs:
            block.shifted = torch.sub(rows, block.top[:, None], out=buffers("shifted", shape, rows.dtype))
        block.z_t = rows.gather(1, labels[:, None]).squeeze(1)
        block.log_p, block.lse, block.others = softmax(rows, labels, block.z_t, block.top, out=p)
        block.p = p.scatter_(1, labels[:, None], block.log_p.exp()[:, None])
        return block


def softmax(rows: Tensor, labels: Tensor, z_t: Tensor, top: Tensor, *, out: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Softmax of rows (b, V) into `out` (`rows` itself will do), 0 in the label's cell -> log p_t, lse, 1 - p_t (b,).

    1 - p_t is the sum of the others and never a difference, as in `numerics.target_log_prob`.
    """
    torch.softmax(rows, 1, out=out)
    lse = top - out.amax(1).log()  # the softmax of the maximum is 1 / sum
    others = out.scatter_(1, labels[:, None], 0.0).sum(1)
    return torch.where(others < 0.5, torch.log1p(-others.clamp_max(0.5)), z_t - lse), lse, others


@dataclass
class RowGradient:
    """d total / d logits of b rows, in the few numbers and matrices that the terms give it.

    gate (p - onehot) + (of_p + of_p_matrix) p + dense + constant + target onehot + columns + cells
    """

    gate: Tensor  # (b,)
    of_p: Tensor  # (b,)
    target: Tensor  # (b,)
    constant: Tensor | None = None  # (b,)
    of_p_matrix: Tensor | None = None  # (b, V)
    of_p_scaled: tuple[Tensor, Tensor] | None = None  # (b, V) and (b,): a part of of_p_matrix, not yet multiplied
    dense: Tensor | None = None  # (b, V)
    columns: list[tuple[Tensor, Tensor]] = field(default_factory=list)  # ids (K,), additions (b, K)
    cells: list[tuple[Tensor, Tensor, Tensor]] = field(default_factory=list)  # rows, ids and additions, (m,) each

    @classmethod
    def zero(cls, like: Tensor) -> RowGradient:
        return cls(torch.zeros_like(like), torch.zeros_like(like), torch.zeros_like(like))

    def add(self, name: str, addition: Tensor) -> None:
        """Add to `constant`, `of_p_matrix` or `dense`, which are None where no term has any."""
        held = getattr(self, name)
        setattr(self, name, addition if held is None else held + addition)

    def add_scaled(self, matrix: Tensor, scale: Tensor) -> None:
        """Add matrix * scale[:, None] to `of_p_matrix`; the matrix (b, V) is used up."""
        if self.of_p_scaled is None:
            self.of_p_scaled = (matrix, scale)
        else:
            self.add("of_p_matrix", matrix.mul_(scale[:, None]))

    def times(self, mean: Tensor, weight: Tensor, labels: Tensor) -> Tensor:
        """(b, H) this gradient, if it is linear in p, times weight (V, H); mean (b, H) is (p - onehot) @ weight."""
        rows = weight.index_select(0, labels) * (self.of_p + self.target)[:, None]
        rows += mean * (self.gate + self.of_p)[:, None]
        for at_rows, ids, additions in self.cells:
            for i, k, value in zip(*(x.split(CELLS_AT_ONCE) for x in (at_rows, ids, additions)), strict=True):
                rows.index_add_(0, i, weight.index_select(0, k) * value[:, None])
        return rows

    def write(self, block: Block) -> None:
        """Put the whole gradient into `block.rows`; the block's `p` and `of_p_matrix` are used up."""
        if block.p is None:
            assert self.dense is not None
            block.rows.copy_(self.dense)
            return
        cells = block.labels[:, None]
        p_t = block.log_p.exp()
        at_target = p_t * self.of_p - self.gate * block.others + self.target
        scale = (self.gate + self.of_p)[:, None]
        if self.of_p_matrix is not None:
            at_target += p_t * self.of_p_matrix.gather(1, cells).squeeze(1)
            scale = self.of_p_matrix.add_(scale)
        if self.of_p_scaled is not None:
            matrix, factor = self.of_p_scaled
            at_target += p_t * factor * matrix.gather(1, cells).squeeze(1)
            scale = torch.addcmul(scale, matrix, factor[:, None], out=matrix)
        if self.dense is not None:
            at_target += self.dense.gather(1, cells).squeeze(1)
        out = torch.mul(block.p, scale, out=block.rows)
        if self.dense is not None:
            out.add_(self.dense)
        if self.constant is not None:
            out.add_(self.constant[:, None])
            at_target += self.constant
        out.scatter_(1, cells, at_target[:, None])
        for ids, additions in self.columns:
            out.index_add_(1, ids, additions)
        for rows, ids, additions in self.cells:
            out.view(-1).index_add_(0, rows * out.shape[1] + ids, additions)


class Place:
    """Where the n tokens of a batch are among the rows of the head; a term's vectors are kept in the order of the rows.

    Args:
        row: (n,) row of each token, or None where token k is row k and there is no other row.
    """

    def __init__(self, row: Tensor | None) -> None:
        self.tokens: Tensor | None = None  # (n,) the tokens in the order of the rows
        self._rows: Tensor | None = None
        if row is not None:
            self.tokens = torch.argsort(row)
            self._rows = row[self.tokens]
            self._list = self._rows.tolist()  # one synchronisation here, none in the loop over chunks

    def within(self, start: int, stop: int) -> tuple[int, int, Tensor | None]:
        """Rows start..stop -> the range of the term's vectors, and which of these rows (None: all) it is."""
        if self._rows is None:
            return start, stop, None
        i, j = bisect_left(self._list, start), bisect_left(self._list, stop)
        return i, j, None if j - i == stop - start else self._rows[i:j] - start

    def as_tokens(self, vector: Tensor) -> Tensor:
        """(n, ...) in the order of the rows -> in the order of the batch."""
        return vector if self.tokens is None else torch.empty_like(vector).index_copy_(0, self.tokens, vector)

    def as_rows(self, vector: Tensor) -> Tensor:
        """(n, ...) in the order of the batch -> in the order of the rows."""
        return vector if self.tokens is None else vector.index_select(0, self.tokens)

    def part(self, batch: Batch, i: int, j: int) -> Batch:
        """The batch with the tokens i..j in the order of the rows, for losses that look at nothing else."""
        chosen = slice(i, j) if self.tokens is None else self.tokens[i:j]
        context = {
            name: value[chosen] if name in CONTEXT and CONTEXT[name].per == "token" and name != "tokens" else value
            for name, value in batch.context.items()
        }
        return replace(batch, labels=batch.labels[chosen], index=batch.index[chosen], context=context)


def at(vector: Tensor, chosen: Tensor | None) -> Tensor:
    """Some rows of a vector or matrix; all of them without a copy where `chosen` is None."""
    return vector if chosen is None else vector.index_select(0, chosen)


def spread(vector: Tensor, chosen: Tensor | None, size: int) -> Tensor:
    """The reverse of `at`: zeros in the rows that were not chosen."""
    return vector if chosen is None else vector.new_zeros(size, *vector.shape[1:]).index_copy_(0, chosen, vector)
