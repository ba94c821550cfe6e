"""What each family of losses takes from a block of logits, and what it gives to the block's gradient.

A term runs in one of two ways. *Direct*: `gradient` makes values and gradient of a block at once, for losses whose
tokens do not know of each other. *Deferred*: a first pass over all tokens calls `observe`, then `evaluate` makes the
values from what was seen, `backpropagate` the derivatives, and a second pass calls `gradient`.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from ..base import RowLoss, Statistics, StatisticsLoss, TargetLoss
from ..batch import Batch
from .rows import LOGITS, SHIFTED, SOFTMAX, Block, Place, RowGradient, at, spread


class Term:
    """One loss on its tokens.

    Args:
        loss: the loss.
        batch: its n tokens.
        place: where they are among the rows of the head.
        dtype: float32, or float64 for a float64 head.
        upstream: (n,) d total / d value of each token (a scalar for a loss with one value) in the order of the batch,
            or None where only the value is wanted.
    """

    needs: frozenset[str] = frozenset({SOFTMAX})
    gate_only: ClassVar[bool] = False  # its gradient is gate * (p - onehot)
    matrices: int = 1  # of the size of a block that it makes on the way, roughly: blocks are smaller then
    linear_in_p: ClassVar[bool] = False  # its gradient is a number a row times p, and single cells

    def __init__(self, loss: object, batch: Batch, place: Place, dtype: torch.dtype, upstream: Tensor | None) -> None:
        self.loss, self.batch, self.place = loss, batch, place
        self.deferred = getattr(loss, "scope", "global") != "local" or bool(loss.state_dict())  # type: ignore[attr-defined]
        self.upstream = upstream if upstream is None or not upstream.dim() else place.as_rows(upstream)
        self.dtype = dtype
        self._values = batch.labels.new_zeros(batch.n, dtype=dtype)

    @property
    def values(self) -> Tensor:
        """(n,) values in the order of the batch (or one scalar), without graph."""
        return self.place.as_tokens(self._values)

    def observe(self, block: Block) -> None:
        """Remember of a block what `evaluate` needs."""
        raise NotImplementedError

    def evaluate(self, *, differentiable: bool) -> None:
        """All blocks were observed: make `values`; differentiable if `backpropagate` will follow."""

    def backpropagate(self, upstream: Tensor) -> None:
        """Derivatives of what was observed, from those of the values (n,) in the order of the batch."""
        self.upstream = self.place.as_rows(upstream) if upstream.dim() else upstream

    def gradient(self, block: Block, out: RowGradient) -> None:
        """Add this term's part of the gradient of a block, and keep its values if that was not done before."""
        raise NotImplementedError

    def _scaled(self, i: int, j: int) -> Tensor:
        assert self.upstream is not None
        return self.upstream[i:j]


class ObservedTerm(Term):
    """A term that is a function of a few vectors over the tokens: `features` names them."""

    features: tuple[str, ...] = ()

    def __init__(self, loss: object, batch: Batch, place: Place, dtype: torch.dtype, upstream: Tensor | None) -> None:
        super().__init__(loss, batch, place, dtype, upstream)
        self._seen: dict[str, Tensor] = {}
        self._slopes: dict[str, Tensor] = {}  # d total / d feature, in the order of the rows
        self._graph: tuple[dict[str, Tensor], Tensor] | None = None

    def measure(self, block: Block, chosen: Tensor | None) -> dict[str, Tensor]:
        """The features of the chosen rows of a block, each (b,)."""
        raise NotImplementedError

    def value(self, features: dict[str, Tensor], batch: Batch) -> Tensor:
        """(n,) differentiable values from the features of n tokens."""
        raise NotImplementedError

    def apply(
        self, block: Block, chosen: Tensor | None, seen: dict[str, Tensor], slopes: dict[str, Tensor], out: RowGradient
    ) -> None:
        """Turn derivatives of the features (b,) into the gradient of the block."""
        raise NotImplementedError

    def observe(self, block: Block) -> None:
        i, j, chosen = self.place.within(block.start, block.stop)
        for name, vector in self.measure(block, chosen).items():
            if name not in self._seen:
                self._seen[name] = vector.new_zeros(self.batch.n)
            self._seen[name][i:j] = vector

    def evaluate(self, *, differentiable: bool) -> None:
        if not self.batch.n:
            return
        leaves = {
            name: self.place.as_tokens(x).detach().requires_grad_(differentiable) for name, x in self._seen.items()
        }
        with torch.set_grad_enabled(differentiable):
            values = self.value(leaves, self.batch)
        self._values = self.place.as_rows(values.detach())
        self._graph = (leaves, values) if differentiable else None

    def backpropagate(self, upstream: Tensor) -> None:
        super().backpropagate(upstream)
        if self._graph is not None:
            leaves, values = self._graph
            self._graph = None
            self._slopes = {k: self.place.as_rows(g) for k, g in _slopes(values, leaves, upstream).items()}

    def gradient(self, block: Block, out: RowGradient) -> None:
        i, j, chosen = self.place.within(block.start, block.stop)
        if i == j:
            return
        if self._seen:
            if self.upstream is not None:
                seen = {name: vector[i:j] for name, vector in self._seen.items()}
                self.apply(block, chosen, seen, {name: g[i:j] for name, g in self._slopes.items()}, out)
            return
        leaves = {name: x.requires_grad_() for name, x in self.measure(block, chosen).items()}
        batch = self.place.part(self.batch, i, j)
        with torch.set_grad_enabled(self.upstream is not None):
            values = self.value(leaves, batch)
        self._values[i:j] = values.detach()
        if self.upstream is not None:
            slopes = _slopes(values, leaves, self._scaled(i, j))
            self.apply(block, chosen, {k: x.detach() for k, x in leaves.items()}, slopes, out)


def _slopes(values: Tensor, leaves: dict[str, Tensor], upstream: Tensor) -> dict[str, Tensor]:
    if not values.requires_grad:  # a formula of constants, such as an empty mask
        return {}
    found = torch.autograd.grad(values, list(leaves.values()), upstream.to(values.dtype), allow_unused=True)
    return {name: g for name, g in zip(leaves, found, strict=True) if g is not None}


class TargetTerm(ObservedTerm):
    """A function of log p_t: cross-entropy's gradient, times one scalar a token."""

    loss: TargetLoss
    gate_only = True
    linear_in_p = True

    def measure(self, block: Block, chosen: Tensor | None) -> dict[str, Tensor]:
        return {"log_p": at(block.log_p, chosen).clone()}

    def value(self, features: dict[str, Tensor], batch: Batch) -> Tensor:
        return self.loss.of_log_p(features["log_p"], batch)

    def apply(
        self, block: Block, chosen: Tensor | None, seen: dict[str, Tensor], slopes: dict[str, Tensor], out: RowGradient
    ) -> None:
        if "log_p" in slopes:
            out.gate -= spread(slopes["log_p"], chosen, len(out.gate))


class StatisticsTerm(ObservedTerm):
    """A function of sums over the row; its gradient is put together from the derivatives of the sums."""

    loss: StatisticsLoss

    def __init__(
        self, loss: StatisticsLoss, batch: Batch, place: Place, dtype: torch.dtype, upstream: Tensor | None
    ) -> None:
        super().__init__(loss, batch, place, dtype, upstream)
        self.names = tuple(loss.statistics)
        loss.measure(torch.zeros(0, 2), torch.zeros(0, dtype=torch.int64))  # refuses unknown names
        if {"sum_z", "sum_z2", "sum_pz"} & set(self.names):
            self.needs = frozenset({SOFTMAX, SHIFTED if loss.shift_invariant else LOGITS})
            self.matrices = 2

    def _rows(self, block: Block, chosen: Tensor | None) -> Tensor:
        rows = block.shifted if self.loss.shift_invariant else block.logits
        assert rows is not None
        return at(rows, chosen)

    def measure(self, block: Block, chosen: Tensor | None) -> dict[str, Tensor]:
        found = {"log_p": at(block.log_p, chosen).clone()}
        shift = at(block.top, chosen) if self.loss.shift_invariant else 0.0
        assert block.p is not None
        for name in self.names:
            match name:
                case "lse":
                    found[name] = at(block.lse, chosen) - shift
                case "z_t":
                    found[name] = at(block.z_t, chosen) - shift
                case "sum_z":
                    found[name] = self._rows(block, chosen).sum(1)
                case "sum_z2":
                    found[name] = _dot(rows := self._rows(block, chosen), rows)
                case "sum_p2":
                    found[name] = _dot(p := at(block.p, chosen), p)
                case "sum_pz":
                    found[name] = _dot(at(block.p, chosen), self._rows(block, chosen))
        return found

    def value(self, features: dict[str, Tensor], batch: Batch) -> Tensor:
        missing = torch.full_like(features["log_p"], torch.nan)  # as in StatisticsLoss.measure
        fields = ("lse", "z_t", "sum_z", "sum_z2", "sum_p2", "sum_pz")
        sums = {name: features.get(name, missing) for name in fields}
        return self.loss.value(Statistics(features["log_p"], **sums), batch)

    def apply(
        self, block: Block, chosen: Tensor | None, seen: dict[str, Tensor], slopes: dict[str, Tensor], out: RowGradient
    ) -> None:
        b = len(out.gate)
        assert block.p is not None
        for name, slope in slopes.items():
            match name:
                case "log_p":
                    out.gate -= spread(slope, chosen, b)
                case "lse":
                    out.of_p += spread(slope, chosen, b)
                case "z_t":
                    out.target += spread(slope, chosen, b)
                case "sum_z":
                    out.add("constant", spread(slope, chosen, b))
                case "sum_z2":
                    out.add("dense", spread(self._rows(block, chosen) * (2 * slope)[:, None], chosen, b))
                case "sum_p2":
                    out.of_p -= spread(2 * slope * seen[name], chosen, b)
                    out.add("of_p_matrix", block.p * spread(2 * slope, chosen, b)[:, None])
                case "sum_pz":
                    out.of_p += spread(slope * (1 - seen[name]), chosen, b)
                    out.add("of_p_matrix", spread(self._rows(block, chosen) * slope[:, None], chosen, b))


def _dot(a: Tensor, b: Tensor) -> Tensor:
    """(b, V), (b, V) -> (b,) row by row."""
    return torch.linalg.vecdot(a, b, dim=1)


class RowTerm(Term):
    """A function of single rows of logits: autograd on the rows of a block."""

    loss: RowLoss
    needs = frozenset({LOGITS})
    matrices = 3

    def observe(self, block: Block) -> None:
        i, j, chosen = self.place.within(block.start, block.stop)
        if i < j:
            assert block.logits is not None
            with torch.no_grad():
                values = self.loss.value(at(block.logits, chosen), self.place.part(self.batch, i, j))
            self._values[i:j] = values

    def gradient(self, block: Block, out: RowGradient) -> None:
        if self.upstream is None:
            return self.observe(block)
        i, j, chosen = self.place.within(block.start, block.stop)
        if i == j:
            return None
        assert block.logits is not None
        rows = at(block.logits, chosen).detach().requires_grad_()
        with torch.enable_grad():
            values = self.loss.value(rows, self.place.part(self.batch, i, j))
        self._values[i:j] = values.detach()
        if values.requires_grad:
            (gradient,) = torch.autograd.grad(values, rows, self._scaled(i, j).to(values.dtype))
            out.add("dense", spread(gradient, chosen, block.stop - block.start))
        return None
