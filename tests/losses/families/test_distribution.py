"""Hazards and hand-computed values of the cross-entropy family."""

from __future__ import annotations

import math

import pytest
import torch

from lossbench import losses

SURE = torch.tensor([[40.0, 0.0, 0.0]])  # p_t rounds to 1 in float32
SURE_LABEL = torch.tensor([0])


def gradient(loss: torch.nn.Module, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    logits = logits.clone().requires_grad_()
    loss(logits, labels).backward()
    assert logits.grad is not None
    return logits.grad


@pytest.mark.parametrize("gamma", [0.25, 0.5, 0.9])
def test_focal_below_one_has_no_nan_gradient_where_p_rounds_to_one(gamma: float) -> None:
    assert bool(torch.isfinite(gradient(losses.create("focal", gamma=gamma), SURE, SURE_LABEL)).all())


def test_dco_has_no_nan_gradient_where_p_rounds_to_one() -> None:
    loss = losses.create("dco", n_samples=16)
    assert loss(SURE, SURE_LABEL).item() == 0
    assert gradient(loss, SURE, SURE_LABEL).abs().max().item() == pytest.approx(0, abs=1e-30)


@pytest.mark.parametrize(("gamma", "p", "largest"), [(1.0, 0.135, 1.14), (2.0, 0.104, 1.22), (5.0, 0.064, 1.39)])
def test_the_focal_gate_exceeds_one_on_hard_tokens(gamma: float, p: float, largest: float) -> None:
    grid = torch.linspace(0.001, 0.999, 999)
    _, gate = losses.curve(losses.create("focal", gamma=gamma), grid)
    assert gate.max().item() == pytest.approx(largest, abs=0.006)
    assert grid[gate.argmax()].item() == pytest.approx(p, abs=0.005)


def test_focal_class_weights_multiply_the_tokens_of_their_class() -> None:
    logits = torch.zeros(2, 3)
    labels = torch.tensor([0, 2])
    plain = losses.create("focal")(logits, labels, reduction="none")
    weighted = losses.create("focal", class_weights=[2.0, 1.0, 0.5])(logits, labels, reduction="none")
    torch.testing.assert_close(weighted, plain * torch.tensor([2.0, 0.5]))
    with pytest.raises(losses.BadInput, match="3 class_weights but the logits have 4 classes"):
        losses.create("focal", class_weights=[2.0, 1.0, 0.5])(torch.zeros(2, 4), labels)


def test_detached_focal_weight_keeps_the_value_and_changes_the_gradient() -> None:
    logits, labels = torch.tensor([[1.0, 0.0, -1.0]]), torch.tensor([1])
    attached, detached = losses.create("focal"), losses.create("focal", detach_weight=True)
    assert attached(logits, labels).item() == detached(logits, labels).item()
    p = logits.softmax(1)
    onehot = torch.tensor([[0.0, 1.0, 0.0]])
    torch.testing.assert_close(gradient(detached, logits, labels), (1 - p[0, 1]) ** 2 * (p - onehot))


def test_dco_is_minus_log_of_the_chance_that_one_of_n_samples_is_right() -> None:
    logits, labels = torch.zeros(1, 4, dtype=torch.float64), torch.tensor([3])
    assert losses.create("dco", n_samples=5)(logits, labels).item() == pytest.approx(-math.log(1 - 0.75**5))


def test_dco_of_an_impossible_target_keeps_its_gradient() -> None:
    logits = torch.tensor([[0.0, 200.0]])
    loss = losses.create("dco", n_samples=64)
    assert loss(logits, torch.tensor([0])).item() == pytest.approx(200 - math.log(64), rel=1e-6)
    torch.testing.assert_close(gradient(loss, logits, torch.tensor([0])), torch.tensor([[-1.0, 1.0]]))


def test_dco_on_sequences_takes_the_product_of_their_tokens() -> None:
    logits = torch.zeros(2, 2, 2, dtype=torch.float64)
    labels = torch.tensor([[0, 1], [1, -100]])
    loss = losses.create("dco", n_samples=3, level="sequence")
    expected = [-math.log(1 - 0.75**3), -math.log(1 - 0.5**3)]
    assert loss(logits, labels).item() == pytest.approx(sum(expected) / 2)


def test_the_taylor_series_of_order_two() -> None:
    logits, labels = torch.zeros(1, 4), torch.tensor([0])
    assert losses.create("taylor_cross_entropy", order=2)(logits, labels).item() == pytest.approx(0.75 + 0.75**2 / 2)


def test_tldr_doubles_hard_tokens_and_drops_learned_ones() -> None:
    _, gate = losses.curve(losses.create("tldr"), torch.tensor([1e-9, 1 - 1e-9], dtype=torch.float64))
    assert gate.tolist() == pytest.approx([2.0, 0.0], abs=1e-6)


def test_poly1_at_minus_one_removes_the_first_taylor_term() -> None:
    value, _ = losses.curve(losses.create("poly1", epsilon=-1.0), torch.tensor([1 - 1e-4]))
    assert value.item() == pytest.approx((1e-4) ** 2 / 2, rel=1e-3)


def test_comp_sum_at_zero_is_the_inverse_probability() -> None:
    value, _ = losses.curve(losses.create("comp_sum", tau=0.0), torch.tensor([0.25], dtype=torch.float64))
    assert value.item() == pytest.approx(3.0)
