"""Losses with another link than the softmax, against their defining equations."""

from __future__ import annotations

import math

import pytest
import torch

from lossbench import losses
from lossbench.losses.families.links import entmax, tempered_log_softmax
from lossbench.losses.samples import sample

ROWS = sample((), (6,), 40, scale=3.0).logits


@pytest.mark.parametrize("alpha", [1.05, 1.2, 1.5, 2.0, 3.0])
def test_entmax_is_a_probability_that_satisfies_its_optimality_condition(alpha: float) -> None:
    p = entmax(ROWS, alpha)
    torch.testing.assert_close(p.sum(1), torch.ones(6, dtype=torch.float64))
    for row, q in zip(ROWS, p, strict=True):
        support = q > 0
        # on the support (alpha - 1) z - p^(alpha - 1) is the same threshold, and nothing outside reaches it
        threshold = (alpha - 1) * row[support] - q[support] ** (alpha - 1)
        assert threshold.max() - threshold.min() < 1e-6
        assert bool(((alpha - 1) * row[~support] <= threshold.mean() + 1e-6).all())


@pytest.mark.parametrize("alpha", [1.5, 2.0])
def test_exact_entmax_agrees_with_bisection(alpha: float) -> None:
    torch.testing.assert_close(entmax(ROWS, alpha), entmax(ROWS, alpha + 1e-12), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("alpha", [1.2, 1.5, 2.0])
def test_entmax_loss_is_zero_exactly_from_its_margin_on(alpha: float) -> None:
    logits = torch.zeros(1, 5, dtype=torch.float64)
    label = torch.tensor([2])
    loss = losses.create("entmax", alpha=alpha)
    logits[0, 2] = 1 / (alpha - 1) + 1e-6
    assert loss(logits, label).item() == pytest.approx(0, abs=1e-12)
    logits[0, 2] = 1 / (alpha - 1) - 0.1
    assert loss(logits, label).item() > 1e-11


def test_entmax_tends_to_cross_entropy() -> None:
    labels = torch.arange(6)
    found = losses.create("entmax", alpha=1 + 1e-4)(ROWS, labels)
    assert found.item() == pytest.approx(losses.create("cross_entropy")(ROWS, labels).item(), rel=1e-2)


@pytest.mark.parametrize("t", [0.5, 0.9, 1.1, 1.5, 3.0])
def test_tempered_softmax_sums_to_one(t: float) -> None:
    p = tempered_log_softmax(ROWS, t).exp()
    torch.testing.assert_close(p.sum(1), torch.ones(6, dtype=torch.float64), rtol=1e-10, atol=0)


def test_tempered_softmax_converges_for_a_large_vocabulary() -> None:
    rows = torch.randn(2, 151_936, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    p = tempered_log_softmax(rows, 1.2).exp()
    torch.testing.assert_close(p.sum(1), torch.ones(2, dtype=torch.float64), rtol=1e-9, atol=0)


def test_bi_tempered_is_bounded_below_temperature_one() -> None:
    logits = torch.tensor([[0.0, 1e4]], dtype=torch.float64)
    value = losses.create("bi_tempered", t1=0.5, t2=1.5)(logits, torch.tensor([0]))
    assert value.item() < 1 / (1 - 0.5)


def test_stablemax_of_uniform_zero_logits_is_log_v_with_the_right_gradient() -> None:
    logits = torch.zeros(1, 4, dtype=torch.float64, requires_grad=True)
    value = losses.create("stablemax")(logits, torch.tensor([1]))
    value.backward()
    assert value.item() == pytest.approx(math.log(4))
    assert logits.grad is not None
    assert logits.grad[0].tolist() == pytest.approx([0.25, -0.75, 0.25, 0.25])


def test_spherical_z_loss_ignores_shift_and_positive_scale() -> None:
    labels = torch.arange(6)
    loss = losses.create("spherical_z_loss", a=1.0, b=2.0)
    assert loss(7 * ROWS - 3, labels).item() == pytest.approx(loss(ROWS, labels).item(), rel=1e-12)


def test_spherical_z_loss_of_equal_logits_has_a_finite_gradient() -> None:
    logits = torch.zeros(1, 5, requires_grad=True)
    losses.create("spherical_z_loss")(logits, torch.tensor([0])).backward()
    assert logits.grad is not None and bool(logits.grad.isfinite().all())
