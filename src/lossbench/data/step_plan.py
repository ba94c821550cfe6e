"""Which examples every optimizer step sees: a pure function of the seed and a few sizes."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

MicroBatch = tuple[int, ...]  # indices of examples in one forward pass
Step = tuple[MicroBatch, ...]  # one optimizer step
WINDOW = 16  # steps whose examples are sorted by length together


@dataclass(frozen=True)
class StepPlan:
    """The whole order of training, known before it begins.

    Every example comes once an epoch, in an order drawn from (seed, epoch) alone: runs under different losses with one
    seed see the same batches, and no plan ever needs to be saved. The last step of an epoch may be smaller.

    A step is the same set of micro-batches at any world size; they are dealt to the ranks in turn, so that also what a
    loss computes over a whole micro-batch does not depend on how many processes there are.

    Args:
        lengths: tokens of each example.
        batch_size: examples in a forward pass, at most.
        accumulate: forward passes in an optimizer step, over all ranks.
        group_by_length: put examples of similar length into one step, which saves padding; the steps' order stays
            random.
        tokens_per_step: at most so many tokens in an optimizer step (one example at least), in as many forward passes
            as they take; None: batch_size * accumulate examples.
        world_size: ranks that share the micro-batches of a step.
    """

    lengths: tuple[int, ...]
    batch_size: int
    accumulate: int
    seed: int
    group_by_length: bool = False
    tokens_per_step: int | None = None
    world_size: int = 1
    _epochs: dict[int, list[MicroBatch]] = field(default_factory=dict, init=False, repr=False, compare=False)
    _firsts: list[int] = field(default_factory=lambda: [0], init=False, repr=False, compare=False)

    @property
    def step_size(self) -> int:
        """Examples of a whole step, where they are counted by examples."""
        return self.batch_size * self.accumulate

    def steps_in(self, epochs: float) -> int:
        """Optimizer steps of so many epochs, rounded, at least one."""
        if self.tokens_per_step is None:
            return max(1, round(epochs * self.first_step(1)))
        whole = int(epochs)
        last = self.first_step(whole + 1) - self.first_step(whole) if epochs > whole else 0
        return max(1, self.first_step(whole) + round((epochs - whole) * last))

    def first_step(self, epoch: int) -> int:
        """The optimizer step with which an epoch begins, both counted from 0."""
        if self.tokens_per_step is None:  # every epoch has as many
            return epoch * -(-len(self.lengths) // self.step_size)
        while len(self._firsts) <= epoch:
            self._firsts.append(self._firsts[-1] + len(self._epoch(len(self._firsts) - 1)))
        return self._firsts[epoch]

    def step(self, number: int) -> Step:
        """The micro-batches of optimizer step `number`, counted from 0, in order."""
        epoch = 0
        if self.tokens_per_step is None:
            epoch = number // self.first_step(1)
        else:
            while self.first_step(epoch + 1) <= number:
                epoch += 1
        chosen = self._epoch(epoch)[number - self.first_step(epoch)]
        return tuple(chosen[i : i + self.batch_size] for i in range(0, len(chosen), self.batch_size))

    def of_rank(self, number: int, rank: int) -> Step:
        """The micro-batches of a step that `rank` computes; none where a small step has fewer than there are ranks."""
        return self.step(number)[rank :: self.world_size]

    def _epoch(self, epoch: int) -> list[MicroBatch]:
        """The examples of every step of an epoch; those of two epochs are kept."""
        if epoch not in self._epochs:
            while len(self._epochs) > 1:
                del self._epochs[next(iter(self._epochs))]
            self._epochs[epoch] = self._ordered(random.Random(f"{self.seed}-{epoch}"))
        return self._epochs[epoch]

    def _ordered(self, rng: random.Random) -> list[MicroBatch]:
        order = list(range(len(self.lengths)))
        rng.shuffle(order)
        steps = self._cut(order)
        if not self.group_by_length:
            return steps
        *whole, last = steps  # the smaller last step stays a random one
        if self.tokens_per_step is None and len(last) == self.step_size:
            whole, last = steps, ()
        sorted_steps: list[MicroBatch] = []
        for start in range(0, len(whole), WINDOW):
            window = [i for step in whole[start : start + WINDOW] for i in step]
            sorted_steps += self._cut(sorted(window, key=lambda i: -self.lengths[i]))
        rng.shuffle(sorted_steps)
        return [*sorted_steps, last] if last else sorted_steps

    def _cut(self, order: list[int]) -> list[MicroBatch]:
        """An order in pieces, one a step."""
        if self.tokens_per_step is None:
            return [tuple(order[i : i + self.step_size]) for i in range(0, len(order), self.step_size)]
        steps: list[list[int]] = []
        room = 0
        for i in order:
            if not steps or self.lengths[i] > room:
                steps.append([])
                room = self.tokens_per_step
            steps[-1].append(i)
            room -= self.lengths[i]
        return [tuple(step) for step in steps]
