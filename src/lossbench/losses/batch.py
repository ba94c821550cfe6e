"""The valid tokens of a call, without their logits: labels, context, and which sequence each one belongs to."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor


@dataclass
class Batch:
    """Valid tokens in their original order; n of them out of the N positions of `shape`.

    It holds nothing of size n x V except what a loss asked for as context, so a fused head can build it before it has
    any logits.
    """

    labels: Tensor  # (n,) int64
    index: Tensor  # (n,) int64, flat position among the N
    shape: torch.Size  # of the labels as passed; the last dimension runs along a sequence
    vocabulary: int
    context: dict[str, Tensor] = field(default_factory=dict)  # per-token entries hold the n valid tokens only
    sequence_ids: Tensor | None = None  # (N,), all positions

    @property
    def n(self) -> int:
        return self.labels.numel()

    @cached_property
    def all_sequences(self) -> Tensor:
        """(N,) number of the sequence at every position, ignored ones included; a sequence never spans two rows."""
        length = self.shape[-1] if self.shape else 1
        total = self.shape.numel()
        row = torch.arange(total, device=self.labels.device) // max(length, 1)
        if self.sequence_ids is None:
            return row
        pairs = torch.stack([row, self.sequence_ids.to(torch.int64)])
        return torch.unique(pairs, dim=1, return_inverse=True)[1]

    @cached_property
    def position(self) -> Tensor:
        """(n,) position of each valid token in its sequence, counted over all tokens, ignored ones included."""
        return _rank(self.all_sequences)[self.index]

    @cached_property
    def full_lengths(self) -> Tensor:
        """(n,) positions in the sequence of each valid token, ignored ones included."""
        count = torch.bincount(self.all_sequences)
        return count[self.all_sequences[self.index]]

    @cached_property
    def sequence(self) -> Tensor:
        """(n,) sequences that have a valid token, numbered 0..S-1."""
        return torch.unique(self.all_sequences[self.index], return_inverse=True)[1]

    @cached_property
    def n_sequences(self) -> int:
        return int(self.sequence.max()) + 1 if self.n else 0

    @cached_property
    def lengths(self) -> Tensor:
        """(S,) valid tokens in each sequence."""
        return torch.bincount(self.sequence, minlength=self.n_sequences)

    @cached_property
    def rank(self) -> Tensor:
        """(n,) how many valid tokens stand before each one in its sequence."""
        return _rank(self.sequence)

    def sequence_sum(self, values: Tensor) -> Tensor:
        """(n,) values -> (S,) sums."""
        return values.new_zeros(self.n_sequences).index_add(0, self.sequence, values)

    def spread(self, per_sequence: Tensor) -> Tensor:
        """(S,) -> (n,) so that the mean over tokens is the mean over sequences."""
        share = self.n / (self.n_sequences * self.lengths)
        return (per_sequence * share.to(per_sequence.dtype))[self.sequence]

    def previous_pairs(self) -> tuple[Tensor, Tensor]:
        """All (later, earlier) index pairs of valid tokens of one sequence, sum of L (L - 1) / 2 of them.

        Vectors of indices instead of an n x n mask: the pairs of different sequences are never formed.
        """
        order = torch.argsort(self.sequence, stable=True)
        rank = self.rank[order]
        later = torch.repeat_interleave(torch.arange(self.n, device=rank.device), rank)
        first_pair = torch.cumsum(rank, 0) - rank
        offset = torch.arange(later.numel(), device=rank.device) - first_pair[later]
        earlier = later - rank[later] + offset
        return order[later], order[earlier]

    def first_occurrence(self) -> Tensor:
        """(n,) bool: no earlier valid token of the same sequence has this label."""
        key = self.sequence * self.vocabulary + self.labels
        return _rank(key) == 0


def _rank(group: Tensor) -> Tensor:
    """(n,) number of earlier entries with the same value."""
    order = torch.argsort(group, stable=True)
    ordered = group[order]
    arange = torch.arange(group.numel(), device=group.device)
    new = torch.ones_like(ordered, dtype=torch.bool)
    new[1:] = ordered[1:] != ordered[:-1]
    start = torch.cummax(torch.where(new, arange, 0), 0).values if group.numel() else arange
    return torch.empty_like(arange).index_copy(0, order, arange - start)
