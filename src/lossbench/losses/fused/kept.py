"""Logits that are kept, most of them in the memory of the weight's gradient until the gradient takes their place.

The gradient (V, H) of a trained head is returned in any case, and is not written before the gradient of the logits is
known. Until then its memory holds the logits (n, V) of n <= H tokens, block by block of the vocabulary: the block of
the tokens v..w lies, contiguous as (n, w - v), in the rows v..w of the gradient. A block is copied to a buffer that
fits a cache, multiplied, and its product overwrites it. Those of more tokens lie beside it as they are.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from .head import LOW_PRECISION, Head, block_bytes


class Kept:
    """The logits of the first n rows of a head, of the first H of them in the memory of `weight` (V, H)."""

    def __init__(self, head: Head, n: int) -> None:
        self.n = n
        self._head = head
        self.weight = torch.empty_like(head.weights[0], memory_format=torch.contiguous_format)
        vocabulary, h = self.weight.shape
        self._inside = min(n, h)
        self._beside = torch.empty(n - self._inside, vocabulary, dtype=head.dtype, device=self.weight.device)
        size = block_bytes(self.weight.device) // (2 * h * self.weight.element_size())
        if self.weight.dtype in LOW_PRECISION and not head.sparing:
            size *= 2  # each block's part of the hidden states' gradient is added up in float32
        self.width = min(vocabulary, max(256, size))
        full = vocabulary // self.width
        flat = self.weight.view(-1)
        # (blocks, tokens, width) and what is left, (tokens, V - blocks * width)
        self._blocks = flat.as_strided((full, self._inside, self.width), (self.width * h, self.width, 1))
        rest = vocabulary - full * self.width
        self._rest = flat[full * self.width * h :][: self._inside * rest].view(self._inside, rest)
        self._filled = False

    def fill(self) -> None:
        """Make the logits, unless they were made before."""
        if self._filled:
            return
        self._filled = True
        for v, w, block in self._each():
            self._head.multiply(slice(self._inside), slice(v, w), block)
        if self._beside.numel():
            self._head.multiply(slice(self._inside, self.n), slice(None), self._beside)

    def blocks(self, *, write: bool) -> Iterator[tuple[int, int, Tensor]]:
        """(first, last + 1, (rows, V) in float32) of rows that fit a cache; with `write` changes of them are kept."""
        head, size = self._head, self._head.block_rows
        vocabulary, (full, _, width) = head.vocabulary, self._blocks.shape
        for a in range(0, self._inside, size):
            b = min(a + size, self._inside)
            rows = head.buffers("block", (b - a, vocabulary), head.float_dtype)
            most = rows[:, : full * width].unflatten(1, (full, width)).transpose(0, 1)
            most.copy_(self._blocks[:, a:b])
            rows[:, full * width :].copy_(self._rest[a:b])
            yield a, b, rows
            if write:
                self._blocks[:, a:b].copy_(most)
                self._rest[a:b].copy_(rows[:, full * width :])
        for a, b, rows in head.blocks(self._beside, write=write):
            yield self._inside + a, self._inside + b, rows

    def columns(self, n: int) -> Iterator[tuple[int, int, Tensor]]:
        """(first, last + 1, (n, w)) of every block of the vocabulary in a buffer, whose first rows are those kept; the
        memory of a block may be overwritten once it was given."""
        for v, w, block in self._each():
            buffer = self._head.buffers("block", (n, w - v), self.weight.dtype)
            buffer[: self._inside].copy_(block)
            buffer[self._inside : self.n].copy_(self._beside[:, v:w])
            yield v, w, buffer

    def _each(self) -> Iterator[tuple[int, int, Tensor]]:
        full, _, width = self._blocks.shape
        for k in range(full):
            yield k * width, (k + 1) * width, self._blocks[k]
        if self._rest.numel():
            yield full * width, self._head.vocabulary, self._rest
