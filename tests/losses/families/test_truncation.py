"""Which tokens and sequences are left out, and the state that decides it."""

from __future__ import annotations

import copy
import math

import pytest
import torch

from lossbench import losses


def test_the_mean_of_a_probability_threshold_is_over_kept_tokens() -> None:
    logits = torch.tensor([[2.0, 0.0], [0.0, 2.0], [1.0, 0.0]], dtype=torch.float64)
    labels = torch.tensor([0, 0, 0])
    p = logits.softmax(1)[:, 0]
    value = losses.create("probability_threshold", threshold=0.5)(logits, labels)
    assert value.item() == pytest.approx((1 - p[[0, 2]]).mean().item())
    none = losses.create("probability_threshold", threshold=1.0)(logits, labels)
    assert none.item() == 0


def test_error_norm_truncation_drops_confident_mistakes_and_keeps_them_in_the_denominator() -> None:
    logits = torch.tensor([[0.0, 0.0], [-20.0, 20.0]])
    labels = torch.tensor([0, 0])
    assert losses.create("error_norm_truncation")(logits, labels).item() == pytest.approx(math.log(2) / 2)


def test_error_norm_truncation_by_fraction_drops_the_worst() -> None:
    logits = torch.tensor([[0.0, gap] for gap in (-3.0, -1.0, 0.0, 1.0, 3.0)])
    labels = torch.zeros(5, dtype=torch.int64)
    loss = losses.create("error_norm_truncation", fraction=0.4)
    kept = loss(logits, labels, reduction="none") > 0
    assert kept.tolist() == [True, True, True, False, False]
    assert loss.scope == "global"


def test_truncation_begins_after_its_warm_up_which_is_saved() -> None:
    logits, labels = torch.tensor([[-20.0, 20.0]]), torch.tensor([0])
    loss = losses.create("error_norm_truncation", start_iteration=2)
    assert loss(logits, labels).item() == pytest.approx(40)
    resumed = losses.create("error_norm_truncation", start_iteration=2)
    resumed.load_state_dict(loss.state_dict())
    assert resumed(logits, labels).item() == pytest.approx(40)
    assert resumed(logits, labels).item() == 0


def test_evaluation_does_not_move_the_warm_up() -> None:
    loss = losses.create("error_norm_truncation", start_iteration=1).eval()
    for _ in range(3):
        assert loss(torch.tensor([[-20.0, 20.0]]), torch.tensor([0])).item() == pytest.approx(40)


def test_goldfish_windows_do_not_cross_packed_sequences() -> None:
    tokens = torch.randint(1, 30_000, (400,), generator=torch.Generator().manual_seed(0))
    loss = losses.create("goldfish", k=2)
    ids = (torch.arange(400) >= 150).long()
    expected = torch.cat([loss.dropped(tokens[:150]), loss.dropped(tokens[150:])])
    assert torch.equal(loss.dropped(tokens, ids), expected)
    assert not torch.equal(loss.dropped(tokens), expected)


def test_goldfish_without_tokens_hashes_labels_and_spares_windows_with_ignored_ones() -> None:
    tokens = torch.randint(1, 30_000, (1, 200), generator=torch.Generator().manual_seed(0))
    labels = tokens.clone()
    labels[0, 50:60] = -100
    loss = losses.create("goldfish", k=2)
    logits = torch.zeros(1, 200, 30_000)
    with_tokens = loss(logits, labels, tokens=tokens, reduction="none") == 0
    without = loss(logits, labels, reduction="none") == 0
    assert torch.equal(without[0, 63:], with_tokens[0, 63:])
    assert not bool(without[0, 60:63].any())


def test_static_goldfish_counts_positions_of_each_sequence() -> None:
    ids = torch.tensor([[0, 0, 0, 0, 1, 1, 1, 1]])
    dropped = losses.create("goldfish", strategy="static", k=3, start_position=1).dropped(torch.ones(1, 8).long(), ids)
    assert dropped.int().tolist() == [[0, 1, 0, 0, 0, 1, 0, 0]]


def test_about_one_in_k_positions_is_dropped() -> None:
    tokens = torch.randint(1, 30_000, (20_000,), generator=torch.Generator().manual_seed(1))
    share = losses.create("goldfish", k=4).dropped(tokens).double().mean().item()
    assert share == pytest.approx(0.25, abs=0.02)


def logits_with_loss(values: list[float]) -> tuple[torch.Tensor, torch.Tensor]:
    """One sequence of one token for each wanted cross-entropy."""
    wanted = torch.tensor(values, dtype=torch.float64)
    logits = torch.stack([torch.zeros_like(wanted), torch.log(torch.expm1(wanted))], 1)
    return logits[:, None, :], torch.zeros(len(values), 1, dtype=torch.int64)


def test_loss_truncation_drops_high_sequences_but_counts_them() -> None:
    loss = losses.create("loss_truncation", drop_fraction=0.5, min_count=4, recompute=3)
    values = [1.0, 2.0, 3.0, 4.0]
    found = loss(*logits_with_loss(values), reduction="none").squeeze(1)
    # the memory holds the last three losses in a ring: 4, 2, 3; their median is 3
    assert found.tolist() == pytest.approx([1.0, 2.0, 0.0, 0.0])
    assert loss(*logits_with_loss(values)).item() == pytest.approx(3.0 / 4)


def test_the_state_of_loss_truncation_survives_a_checkpoint() -> None:
    settings = {"drop_fraction": 0.4, "min_count": 6, "recompute": 5}
    whole = losses.create("loss_truncation", **settings)
    generator = torch.Generator().manual_seed(0)
    batches = [(3 * torch.rand(4, generator=generator) + 0.1).tolist() for _ in range(8)]
    expected = [whole(*logits_with_loss(batch)).item() for batch in batches]
    first = losses.create("loss_truncation", **settings)
    found = [first(*logits_with_loss(batch)).item() for batch in batches[:3]]
    second = losses.create("loss_truncation", **settings)
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    found += [second(*logits_with_loss(batch)).item() for batch in batches[3:]]
    assert found == expected
    assert any(value < sum(batch) / 4 - 1e-6 for value, batch in zip(found, batches, strict=True))


def test_evaluation_uses_the_threshold_without_moving_it() -> None:
    loss = losses.create("loss_truncation", min_count=1, recompute=1)
    loss.keep(torch.tensor([1.0, 2.0]))
    state = copy.deepcopy(loss.state_dict())
    loss.eval().keep(torch.tensor([9.0]))
    assert all(torch.equal(v, state[k]) for k, v in loss.state_dict().items())
