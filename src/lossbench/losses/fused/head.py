"""The matrix products of a linear head, a few tokens at a time, and the gradients that they add up to."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

LOW_PRECISION = (torch.bfloat16, torch.float16)
ROWS = 256  # that are cast at a time; all at once would be a second copy


@dataclass(frozen=True)
class LowRank:
    """An addition scaling * up @ down to a head's weight, as LoRA trains it, which is never multiplied out.

    Args:
        down: (r, H), LoRA's A.
        up: (V, r), LoRA's B.
        scaling: factor of the product, alpha / r in LoRA.
        dropout: what is done to the hidden states before `down`, e.g. an nn.Dropout.
    """

    down: Tensor
    up: Tensor
    scaling: float = 1.0
    dropout: Callable[[Tensor], Tensor] | None = None

    def inputs(self, hidden: Tensor) -> Tensor:
        """(n, H) hidden states -> (n, r): what `up` is multiplied with, differentiable."""
        hidden = hidden if self.dropout is None else self.dropout(hidden)
        return self.scaling * torch.nn.functional.linear(hidden.to(self.down.dtype), self.down)


class Buffers:
    """Work tensors by name, allocated once and used again for every chunk."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._held: dict[str, Tensor] = {}

    def __call__(self, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        size = math.prod(shape)
        held = self._held.get(name)
        if held is None or held.numel() < size or held.dtype != dtype:
            held = self._held[name] = torch.empty(size, dtype=dtype, device=self._device)
        return held[:size].view(shape)


@dataclass
class Head:
    """logits = sum of inputs[k] @ weights[k].T + bias: the head itself and what low-rank additions it has.

    Everything is in the dtype of the product; the inputs hold the valid tokens only.
    """

    inputs: list[Tensor]  # (n, H_k)
    weights: list[Tensor]  # (V, H_k)
    bias: Tensor | None  # (V,)
    matrices: int = 1  # of the size of a block of rows that are in use at a time
    sparing: bool = False  # take smaller buffers than are fastest
    buffers: Buffers = field(init=False)
    held: int | None = field(init=False, default=None)  # where the logits start that are in the buffer still

    def __post_init__(self) -> None:
        self.buffers = Buffers(self.inputs[0].device)

    @property
    def n(self) -> int:
        return self.inputs[0].shape[0]

    @property
    def vocabulary(self) -> int:
        return self.weights[0].shape[0]

    @property
    def dtype(self) -> torch.dtype:
        return self.inputs[0].dtype

    @property
    def float_dtype(self) -> torch.dtype:
        """The dtype of everything but the products: float32, or float64 for a float64 head."""
        return torch.float64 if self.dtype == torch.float64 else torch.float32

    @property
    def block_rows(self) -> int:
        """Rows of logits that fit a cache."""
        row = self.float_dtype.itemsize * self.vocabulary * self.matrices * (1 + self.sparing)
        return max(1, block_bytes(self.inputs[0].device) // row)

    def logits(self, start: int, stop: int) -> Tensor:
        """(stop - start, V) logits of some tokens in the dtype of the product, in a buffer that the next call reuses.

        Those of the last call are not computed again: nobody may have written to them then.
        """
        out = self.buffers("logits", (stop - start, self.vocabulary), self.dtype)
        if self.held == start:
            return out
        self.held = start
        self.multiply(slice(start, stop), slice(None), out)
        return out

    def multiply(self, rows: slice, columns: slice, out: Tensor) -> None:
        """out (n, w) = logits of some rows in some columns, in the dtype of the product."""
        times_transposed(self.inputs[0][rows], self.weights[0][columns], out)
        for inputs, weight in zip(self.inputs[1:], self.weights[1:], strict=True):
            out.addmm_(inputs[rows], weight[columns].t())
        if self.bias is not None:
            out += self.bias[columns]

    def blocks(self, logits: Tensor, *, write: bool) -> Iterator[tuple[int, int, Tensor]]:
        """(first, last + 1, rows in float32) of pieces that fit a cache; with `write` changes of rows reach `logits`.

        Several passes over a piece then cost one pass over main memory.
        """
        low = logits.dtype in LOW_PRECISION
        size = self.block_rows
        for start in range(0, logits.shape[0], size):
            piece = logits[start : start + size]
            rows = self.buffers("block", tuple(piece.shape), self.float_dtype).copy_(piece) if low else piece
            yield start, start + piece.shape[0], rows
            if low and write:
                piece.copy_(rows)


def times_transposed(inputs: Tensor, weight: Tensor, out: Tensor) -> None:
    """out = inputs @ weight.T, (n, H), (V, H) -> (n, V), in the dtype of `inputs`, a cacheful of the weight at a time.

    On a CPU that is a third faster than one product with a transposed weight, and a weight of another dtype is cast
    without a second copy of it.
    """
    size = max(128, block_bytes(out.device) // (4 * weight.shape[1] * inputs.element_size()))
    for a in range(0, weight.shape[0], size):
        torch.mm(inputs, weight[a : a + size].to(inputs.dtype).t(), out=out[:, a : a + size])


@dataclass(frozen=True)
class Wanted:
    """Which gradients are asked for."""

    inputs: tuple[bool, ...]
    weights: tuple[bool, ...]
    bias: bool

    @property
    def any(self) -> bool:
        return any(self.inputs) or any(self.weights) or self.bias

    @property
    def only_hidden(self) -> bool:
        """Whether the head is frozen, with all that was added to it."""
        return not (any(self.weights) or self.bias)


class Gradients:
    """Adds up the gradients of a head chunk by chunk; those of weights in float32 where the head is bfloat16."""

    def __init__(self, head: Head, wanted: Wanted) -> None:
        self._head = head
        self._wanted = wanted
        self._inputs = [torch.empty_like(x) if w else None for x, w in zip(head.inputs, wanted.inputs, strict=True)]
        self._weights: list[Tensor | None] = [None] * len(head.weights)
        self._bias = head.weights[0].new_zeros(head.vocabulary, dtype=head.float_dtype) if wanted.bias else None

    def add(self, gradient: Tensor, start: int, stop: int, scale: Tensor | None = None) -> None:
        """Add what follows from d/dlogits = scale[:, None] * gradient (stop - start, V) of some tokens.

        `scale` in float32 multiplies the small operands, never the V columns.
        """
        column = None if scale is None else scale[:, None]
        for k, (inputs, weight) in enumerate(zip(self._head.inputs, self._head.weights, strict=True)):
            out = self._inputs[k]
            if out is not None:
                part = out[start:stop]
                torch.mm(gradient, weight, out=part)
                if column is not None:
                    torch.mul(part, column, out=part)
            if self._wanted.weights[k]:
                rows = inputs[start:stop]
                self._add_weight(k, gradient, rows if column is None else _scaled(rows, column))
        if self._bias is not None:
            self._bias += _mv(gradient, scale)

    def add_columns(
        self, blocks: Iterable[tuple[int, int, Tensor]], stop: int, scale: Tensor | None, weight: Tensor | None
    ) -> None:
        """Add what follows from d/dlogits of the tokens 0..stop, given in blocks of the vocabulary (first, last + 1,
        (stop, w)), as the first addition of all; `weight` (V, H) is where the head's own gradient goes to."""
        head, column = self._head, None if scale is None else scale[:, None]
        inputs = [x[:stop] for x in head.inputs]
        scaled = inputs if column is None else [_scaled(x, column) for x in inputs]
        self._weights = [
            None if not wanted else weight if k == 0 else torch.empty_like(head.weights[k])
            for k, wanted in enumerate(self._wanted.weights)
        ]
        sums = [  # over the blocks, in float32
            None
            if x is None
            else x[:stop].zero_()
            if x.dtype == head.float_dtype
            else torch.zeros_like(x[:stop], dtype=head.float_dtype)
            for x in self._inputs
        ]
        for v, w, gradient in blocks:
            for k, rows in enumerate(scaled):
                total, out = sums[k], self._weights[k]
                if total is not None:
                    add_product(total, gradient, head.weights[k][v:w], head.buffers)
                if out is not None:
                    torch.mm(gradient.t(), rows, out=out[v:w])
            if self._bias is not None:
                self._bias[v:w] = _mv(gradient, scale)
        for total, whole in zip(sums, self._inputs, strict=True):
            if total is not None and whole is not None:
                total = total if column is None else total.mul_(column)
                if total.dtype != whole.dtype:
                    whole[:stop] = total

    def _add_weight(self, k: int, gradient: Tensor, rows: Tensor) -> None:
        shape = self._head.weights[k].shape
        total = self._weights[k]
        first = total is None
        if rows.dtype not in LOW_PRECISION or rows.shape[0] == self._head.n:  # exact, or no sum over chunks
            if total is None:
                self._weights[k] = torch.mm(gradient.t(), rows)
            else:
                total.addmm_(gradient.t(), rows)
            return
        if total is None:
            total = self._weights[k] = torch.empty(shape, dtype=self._head.float_dtype, device=rows.device)
        elif total.dtype != self._head.float_dtype:
            total = self._weights[k] = total.to(self._head.float_dtype)
        size = max(256, block_bytes(rows.device) // shape[1])
        for a in range(0, shape[0], size):
            b = min(a + size, shape[0])
            part = torch.mm(gradient[:, a:b].t(), rows, out=self._head.buffers("weight", (b - a, shape[1]), rows.dtype))
            total[a:b].copy_(part) if first else total[a:b].add_(part)

    def finished(self) -> list[Tensor | None]:
        """Gradients of inputs and weights in turn, then of the bias; zeros where there was no token."""
        found: list[Tensor | None] = []
        for k, weight in enumerate(self._head.weights):
            total = self._weights[k]
            if self._wanted.weights[k] and total is None:
                total = torch.zeros_like(weight)
            found += [self._inputs[k], total]
        return [*found, self._bias]


def _scaled(x: Tensor, column: Tensor) -> Tensor:
    """x (n, H) * column (n, 1) in the dtype of x."""
    if x.dtype == column.dtype:
        return x * column
    out = torch.empty_like(x)
    for to, rows, factor in zip(out.split(ROWS), x.split(ROWS), column.split(ROWS), strict=True):
        to.copy_(rows * factor)
    return out


def _mv(gradient: Tensor, scale: Tensor | None) -> Tensor:
    """(n, V), (n,) or None for ones -> (V,) sum of the scaled rows."""
    return torch.mv(gradient.t(), torch.ones_like(gradient[:, 0]) if scale is None else scale.to(gradient.dtype))


def add_product(total: Tensor, gradient: Tensor, weight: Tensor, buffers: Buffers) -> None:
    """total += gradient @ weight, the sum in the dtype of `total`."""
    if total.dtype == gradient.dtype:
        total.addmm_(gradient, weight)
    else:
        part = torch.mm(gradient, weight, out=buffers("hidden", tuple(total.shape), gradient.dtype))
        for rows, addition in zip(total.split(ROWS), part.split(ROWS), strict=True):
            rows += addition


def block_bytes(device: torch.device) -> int:
    """Bytes of a piece for elementwise passes: what fits a core's cache, more where every operator costs a launch.

    With several OpenMP threads every operator is a parallel region, whose threads have to be woken; threads that spin
    instead each wait for a scheduler slice on a busy machine.
    """
    if device.type == "cpu" and torch.get_num_threads() == 1:
        return 2 << 20
    sleeps = os.environ.get("OMP_WAIT_POLICY", "").upper() == "PASSIVE" or os.environ.get("GOMP_SPINCOUNT") == "0"
    return 8 << 20 if device.type == "cpu" and sleeps else 32 << 20
