"""From tokenised examples to the tensors of an optimizer step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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
    """One optimizer step: its micro-batches, and the number of valid tokens in all of them by scope, by which every
    micro-batch's sum is divided, so that accumulation changes nothing."""

    batches: tuple[Batch, ...]
    normalizer: dict[str, int]

    def to(self, device: torch.device) -> StepBatches:
        return StepBatches(tuple(batch.to(device) for batch in self.batches), self.normalizer)


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


class StepDataset(Dataset[StepBatches]):
    """Optimizer steps `first` to `last` of a plan, ready for a DataLoader with batch_size=None."""

    def __init__(self, examples: Sequence[TokenizedExample], plan: StepPlan, last: int, first: int = 0) -> None:
        self.examples, self.plan, self.first, self.last = examples, plan, first, last

    def __len__(self) -> int:
        return self.last - self.first

    def __getitem__(self, index: int) -> StepBatches:
        if not 0 <= index < len(self):
            raise IndexError(index)
        step = self.plan.step(self.first + index)
        batches = tuple(collate([self.examples[i] for i in micro_batch]) for micro_batch in step)
        normalizer = {scope: sum(int((b.labels[scope] != IGNORED).sum()) for b in batches) for scope in SCOPES}
        return StepBatches(batches, normalizer)
