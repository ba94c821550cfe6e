"""Hazards and hand-computed values of the robust family."""

from __future__ import annotations

import math

import pytest
import torch

from lossbench import losses

ONE = torch.tensor([0])


def uniform(vocabulary: int) -> torch.Tensor:
    return torch.zeros(1, vocabulary, dtype=torch.float64)


def test_reverse_cross_entropy_has_no_term_that_grows_with_the_vocabulary() -> None:
    logits = torch.zeros(1, 128_256)
    logits[0, 0] = 21.0  # p_t = 0.9999
    value = losses.create("reverse_cross_entropy")(logits, ONE).item()
    p = 1 / (1 + 128_255 * math.exp(-21))
    assert value == pytest.approx(-math.log(1e-4) * (1 - p), rel=1e-4)


def test_generalized_cross_entropy_keeps_the_gradient_of_very_improbable_targets() -> None:
    logits = torch.tensor([[-30.0, 0.0]], requires_grad=True)
    losses.create("generalized_cross_entropy", q=0.1)(logits, ONE).backward()
    assert logits.grad is not None
    assert logits.grad[0, 1].item() == pytest.approx(math.exp(-3.0), rel=1e-4)


def test_truncated_generalized_cross_entropy_is_constant_below_its_threshold() -> None:
    p = torch.tensor([0.1, 0.3, 0.6], dtype=torch.float64)
    value, gate = losses.curve(losses.create("generalized_cross_entropy", truncation_k=0.5), p)
    constant = (1 - 0.5**0.7) / 0.7
    assert value[:2].tolist() == pytest.approx([constant, constant])
    assert gate.tolist() == pytest.approx([0, 0, 0.6**0.7])


def test_the_value_of_dft_is_largest_at_one_over_e() -> None:
    p = torch.linspace(0.01, 0.99, 99, dtype=torch.float64)
    value, _ = losses.curve(losses.create("dft"), p)
    assert p[value.argmax()].item() == pytest.approx(1 / math.e, abs=0.01)
    assert value.max().item() <= 1 / math.e


def test_the_weight_of_tailr_stays_above_its_floor() -> None:
    p = torch.tensor([1e-8, 0.5, 1 - 1e-6], dtype=torch.float64)
    _, gate = losses.curve(losses.create("tailr", gamma=0.1, min_weight=0.3), p)
    assert gate.tolist() == pytest.approx([0.3, 0.5 / 0.55, 1.0], rel=1e-5)


def test_normalised_cross_entropy_is_one_over_the_vocabulary_for_a_uniform_model() -> None:
    loss = losses.create("active_passive", active="nce", beta=0.0)
    assert loss(uniform(1000), ONE).item() == pytest.approx(1e-3)


def test_hard_bootstrap_mixes_in_the_models_own_choice() -> None:
    logits = torch.tensor([[0.0, 2.0, 1.0]], dtype=torch.float64)
    log_p = logits.log_softmax(1)[0]
    value = losses.create("bootstrap", mode="hard", beta=0.8)(logits, ONE)
    assert value.item() == pytest.approx(-0.8 * log_p[0].item() - 0.2 * log_p[1].item())


def test_soft_bootstrap_adds_the_entropy() -> None:
    value = losses.create("bootstrap", beta=0.95)(uniform(8), ONE)
    assert value.item() == pytest.approx(math.log(8))
