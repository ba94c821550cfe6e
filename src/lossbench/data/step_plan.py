"""Which examples every optimizer step sees: a pure function of the seed and a few sizes."""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import lru_cache

MicroBatch = tuple[int, ...]  # indices of examples in one forward pass
Step = tuple[MicroBatch, ...]  # one optimizer step
WINDOW = 16  # steps whose examples are sorted by length together


@dataclass(frozen=True)
class StepPlan:
    """The whole order of training, known before it begins.

    Every example comes once an epoch, in an order drawn from (seed, epoch) alone: runs under different losses with one
    seed see the same batches, and no plan ever needs to be saved. The last step of an epoch may be smaller.

    Args:
        lengths: tokens of each example.
        batch_size: examples in a forward pass.
        accumulate: forward passes in an optimizer step.
        group_by_length: put examples of similar length into one step, which saves padding; the steps' order stays
            random.
    """

    lengths: tuple[int, ...]
    batch_size: int
    accumulate: int
    seed: int
    group_by_length: bool = False

    @property
    def step_size(self) -> int:
        return self.batch_size * self.accumulate

    @property
    def steps_per_epoch(self) -> int:
        return -(-len(self.lengths) // self.step_size)

    def step(self, number: int) -> Step:
        """The micro-batches of optimizer step `number`, counted from 0."""
        epoch, place = divmod(number, self.steps_per_epoch)
        chosen = _epoch(self, epoch)[place]
        return tuple(chosen[i : i + self.batch_size] for i in range(0, len(chosen), self.batch_size))


@lru_cache(maxsize=2)
def _epoch(plan: StepPlan, epoch: int) -> list[tuple[int, ...]]:
    """The examples of every step of an epoch."""
    rng = random.Random(f"{plan.seed}-{epoch}")
    order = list(range(len(plan.lengths)))
    rng.shuffle(order)
    size = plan.step_size
    if plan.group_by_length:
        whole = len(order) // size * size  # the smaller last step stays a random one
        windows = [order[i : min(i + WINDOW * size, whole)] for i in range(0, whole, WINDOW * size)]
        order[:whole] = [i for window in windows for i in sorted(window, key=lambda i: -plan.lengths[i])]
    steps = [tuple(order[i : i + size]) for i in range(0, len(order), size)]
    if plan.group_by_length:
        full = [step for step in steps if len(step) == size]
        rng.shuffle(full)
        steps[: len(full)] = full
    return steps
