"""EMO without the projection of the whole prediction: cosines of the distinct labels instead.

    d = 1 - sum_j p_j cos(E_j, E_t),   dd/dz_j = -p_j (cos(E_j, E_t) - sum_k p_k cos(E_k, E_t))

The cosines with all V tokens are one product for each distinct label, not two for each token. Tokens are visited in
the order of their labels, so that a few labels at a time are enough.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..batch import Batch
from ..families.transport import EMO
from .head import Buffers, times_transposed
from .rows import SOFTMAX, Block, Place, RowGradient, at, spread
from .terms import ObservedTerm


class EMOTerm(ObservedTerm):
    """`emo`, whose tokens should stand in the order of their labels among the rows."""

    loss: EMO
    needs = frozenset({SOFTMAX})
    matrices = 2

    def __init__(
        self,
        loss: EMO,
        batch: Batch,
        place: Place,
        dtype: torch.dtype,
        upstream: Tensor | None,
        labels: Tensor,
        product: torch.dtype,
        at_once: int,
    ) -> None:
        """`labels` are those of all rows of the head, `product` the dtype of its matrix products, `at_once` the number
        of labels whose cosines are held."""
        super().__init__(loss, batch, place, dtype, upstream)
        self._unit = batch.context["embedding"]
        self._product = product if product.itemsize == 2 else dtype
        self._distinct, self._which = torch.unique_consecutive(labels, return_inverse=True)
        self._numbers = self._which.tolist()
        self._square = self._unit[self._distinct].to(dtype).square().sum(1)  # 1, or 0 for a row of zeros
        groups = -(-len(self._distinct) // at_once)
        self._at_once = -(-len(self._distinct) // max(groups, 1))
        self._held = (0, 0)  # the distinct labels whose cosines are in the buffer
        self._block = -1  # the block whose cosines were asked for last
        self._buffers = Buffers(labels.device)
        self._cosines = torch.empty(0)

    def _cosines_of(self, block: Block) -> Tensor:
        """(b, V) cosines between the labels of a block and all tokens."""
        out = self._buffers("rows", (block.stop - block.start, self._unit.shape[0]), self.dtype)
        if self._block == block.start:  # asked for a second time, by `apply`
            self._block = -1
            return out
        self._block = block.start
        first, last = self._numbers[block.start], self._numbers[block.stop - 1] + 1
        if not (self._held[0] <= first and last <= self._held[1]):
            self._held = (first, max(last, min(first + self._at_once, len(self._distinct))))
            self._cosines = self._product_of(self._distinct[slice(*self._held)])
        which = self._which[block.start : block.stop] - self._held[0]
        if self._cosines.dtype == self.dtype:
            return torch.index_select(self._cosines, 0, which, out=out)
        return out.copy_(self._cosines.index_select(0, which))

    def _product_of(self, labels: Tensor) -> Tensor:
        out = self._buffers("cosines", (len(labels), self._unit.shape[0]), self._product)
        times_transposed(self._unit[labels].to(self._product), self._unit, out)
        return out

    def measure(self, block: Block, chosen: Tensor | None) -> dict[str, Tensor]:
        assert block.p is not None
        similarity = torch.linalg.vecdot(block.p, self._cosines_of(block), dim=1)
        square = self._square[self._which[block.start : block.stop]]
        found = {"log_p": block.log_p, "similarity": similarity, "square": square}
        return {name: at(vector, chosen).clone() for name, vector in found.items()}

    def value(self, features: dict[str, Tensor], batch: Batch) -> Tensor:
        return self.loss.of_similarity(features["log_p"], features["similarity"], features["square"])

    def apply(
        self, block: Block, chosen: Tensor | None, seen: dict[str, Tensor], slopes: dict[str, Tensor], out: RowGradient
    ) -> None:
        b = len(out.gate)
        if "log_p" in slopes:
            out.gate -= spread(slopes["log_p"], chosen, b)
        if "similarity" in slopes:
            slope = spread(slopes["similarity"], chosen, b)
            out.of_p -= slope * spread(seen["similarity"], chosen, b)
            out.add_scaled(self._cosines_of(block), slope)
