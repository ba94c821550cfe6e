"""Which sequence a token belongs to, and the pairs inside it."""

from __future__ import annotations

import torch

from lossbench.losses import Batch


def batch_of(labels: torch.Tensor, sequence_ids: torch.Tensor | None = None) -> Batch:
    flat = labels.reshape(-1)
    index = (flat != -100).nonzero().squeeze(1)
    ids = None if sequence_ids is None else sequence_ids.reshape(-1)
    return Batch(flat[index], index, labels.shape, 10, {}, ids)


def test_rows_are_sequences_and_those_without_a_valid_token_vanish() -> None:
    batch = batch_of(torch.tensor([[1, -100, 2], [-100, -100, -100], [-100, 3, 4]]))
    assert batch.sequence.tolist() == [0, 0, 1, 1]
    assert batch.position.tolist() == [0, 2, 1, 2]
    assert batch.rank.tolist() == [0, 1, 0, 1]
    assert batch.lengths.tolist() == [2, 2]
    assert batch.n_sequences == 2


def test_sequence_ids_divide_a_row_and_never_join_two() -> None:
    ids = torch.tensor([[5, 5, 7], [5, 5, 5]])
    batch = batch_of(torch.tensor([[1, 2, 3], [4, 5, 6]]), ids)
    assert batch.sequence.tolist() == [0, 0, 1, 2, 2, 2]
    assert batch.position.tolist() == [0, 1, 0, 0, 1, 2]


def test_pairs_are_all_earlier_tokens_of_the_same_sequence() -> None:
    batch = batch_of(torch.tensor([[1, 2, -100, 3], [4, -100, 5, -100]]))
    later, earlier = batch.previous_pairs()
    assert sorted(zip(later.tolist(), earlier.tolist(), strict=True)) == [(1, 0), (2, 0), (2, 1), (4, 3)]


def test_interleaved_sequences_are_kept_apart() -> None:
    batch = batch_of(torch.tensor([1, 2, 3, 4]), torch.tensor([0, 1, 0, 1]))
    later, earlier = batch.previous_pairs()
    assert sorted(zip(later.tolist(), earlier.tolist(), strict=True)) == [(2, 0), (3, 1)]


def test_first_occurrences_are_those_of_the_sequence() -> None:
    batch = batch_of(torch.tensor([[1, 2, 1], [1, 1, 2]]))
    assert batch.first_occurrence().tolist() == [True, True, False, True, False, True]


def test_a_mean_over_sequences_can_be_spread_over_tokens() -> None:
    batch = batch_of(torch.tensor([[1, -100, -100], [1, 2, 3]]))
    assert batch.spread(torch.tensor([1.0, 3.0])).mean().item() == 2.0
