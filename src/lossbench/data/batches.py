"""From tokenised examples to the tensors of an optimizer step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.utils.data import Dataset

from lossbench.data.step_plan import StepPlan
from lossbench.data.tokens import TokenizedExample

IGNORED = -100
SCOPES = ("answer", "sequence")


@dataclass(frozen=True)
class Batch:
    """One forward pass. All tensors are (B, T) int64; position t predicts `labels[scope][:, t]`, the next token."""

    ids: tuple[str, ...]
    input_ids: Tensor
    attention_mask: Tensor
    labels: dict[str, Tensor]

    def to(self, device: torch.device) -> Batch:
        labels = {scope: rows.to(device, non_blocking=True) for scope, rows in self.labels.items()}
        return Batch(
            self.ids,
            self.input_ids.to(device, non_blocking=True),
            self.attention_mask.to(device, non_blocking=True),
            labels,
        )


@dataclass(frozen=True)
class StepBatches:
    """The share of one rank in an optimizer step: its micro-batches, and the valid tokens of the whole step by scope.

    Every micro-batch's sum is divided by that number, so that neither accumulation nor ranks change anything.
    """

    batches: tuple[Batch, ...]
    normalizer: dict[str, int]
    number: int = 0  # of the optimizer step, from 0
    tokens: int = 0  # of the whole step's texts, without padding

    def to(self, device: torch.device) -> StepBatches:
        return replace(self, batches=tuple(batch.to(device) for batch in self.batches))


def collate(examples: Sequence[TokenizedExample], pad_id: int = 0) -> Batch:
    """Right-pad to the longest. Padding is told by position, never by the pad token's id, so that pad = eos is safe."""
    longest = max(len(example.input_ids) for example in examples)
    shape = (len(examples), longest)
    input_ids = torch.full(shape, pad_id)
    attention_mask = torch.zeros(shape, dtype=torch.long)
    labels = {scope: torch.full(shape, IGNORED) for scope in SCOPES}
    for row, example in enumerate(examples):
        ids = torch.tensor(example.input_ids)
        input_ids[row, : len(ids)] = ids
        attention_mask[row, : len(ids)] = 1
        labels["sequence"][row, : len(ids) - 1] = ids[1:]
        first = max(example.target_start, 1)  # nothing predicts the first token
        labels["answer"][row, first - 1 : len(ids) - 1] = ids[first:]
    return Batch(tuple(example.id for example in examples), input_ids, attention_mask, labels)


def without_labels(batch: Batch) -> Batch:
    """A forward pass that adds nothing: for a rank that a small step leaves without one, when ranks work in step."""
    return Batch(
        (),
        batch.input_ids[:1],
        batch.attention_mask[:1],
        {scope: torch.full_like(rows[:1], IGNORED) for scope, rows in batch.labels.items()},
    )


def valid_tokens(example: TokenizedExample, scope: str) -> int:
    """How many labels of a scope an example has, as `collate` makes them."""
    return len(example.input_ids) - (max(example.target_start, 1) if scope == "answer" else 1)


class StepDataset(Dataset[StepBatches]):
    """The share of `rank` in the optimizer steps `first` to `last` of a plan, for a DataLoader with batch_size=None.

    A step is a function of its number alone, so training can go on at any step, with any number of loader workers.
    """

    def __init__(
        self, examples: Sequence[TokenizedExample], plan: StepPlan, last: int, first: int = 0, rank: int = 0
    ) -> None:
        self.examples, self.plan, self.first, self.last, self.rank = examples, plan, first, last, rank

    def __len__(self) -> int:
        return self.last - self.first

    def __getitem__(self, index: int) -> StepBatches:
        if not 0 <= index < len(self):
            raise IndexError(index)
        number = self.first + index
        step = self.plan.step(number)
        mine = self.plan.of_rank(number, self.rank)
        batches = [collate([self.examples[i] for i in micro_batch]) for micro_batch in mine]
        while len(batches) < -(-len(step) // self.plan.world_size):
            batches.append(without_labels(collate([self.examples[step[0][0]]])))
        every = [self.examples[i] for micro_batch in step for i in micro_batch]
        normalizer = {scope: max(1, sum(valid_tokens(example, scope) for example in every)) for scope in SCOPES}
        tokens = sum(len(example.input_ids) for example in every)
        return StepBatches(tuple(batches), normalizer, number, tokens)
