"""Which examples every optimizer step sees: a pure function of the seed and a few sizes."""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import lru_cache

MicroBatch = tuple[int, ...]  # indices of examples in one forward pass
Step = tuple[MicroBatch, ...]  # one optimizer step


@dataclass(frozen=True)
class StepPlan:
    """The whole order of training, known before it begins.

    Every example comes once an epoch, in an order drawn from (seed, epoch) alone: runs under different losses with one
    seed see the same batches, and no plan ever needs to be saved. The last step of an epoch may be smaller.
    """

    examples: int
    batch_size: int
    accumulate: int
    seed: int

    @property
    def steps_per_epoch(self) -> int:
        return -(-self.examples // (self.batch_size * self.accumulate))

    def step(self, number: int) -> Step:
        """The micro-batches of optimizer step `number`, counted from 0."""
        epoch, place = divmod(number, self.steps_per_epoch)
        size = self.batch_size * self.accumulate
        chosen = _order(self.examples, self.seed, epoch)[place * size : (place + 1) * size]
        return tuple(chosen[i : i + self.batch_size] for i in range(0, len(chosen), self.batch_size))


@lru_cache(maxsize=2)
def _order(examples: int, seed: int, epoch: int) -> tuple[int, ...]:
    order = list(range(examples))
    random.Random(f"{seed}-{epoch}").shuffle(order)
    return tuple(order)
