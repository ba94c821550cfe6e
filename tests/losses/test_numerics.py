"""The numerical pieces against float64 or against numbers of arbitrary precision."""

from __future__ import annotations

import math
from decimal import Decimal, getcontext

import pytest
import torch
import torch.nn.functional as F

from lossbench.losses.numerics import complement, frozen_stop_gradients, log_complement, stop_gradient, target_log_prob


def test_target_log_prob_is_that_of_log_softmax() -> None:
    rows = torch.randn(5, 9, dtype=torch.float64, requires_grad=True)
    labels = torch.arange(5)
    torch.testing.assert_close(target_log_prob(rows, labels), -F.cross_entropy(rows, labels, reduction="none"))
    assert torch.autograd.gradcheck(lambda z: target_log_prob(z, labels), rows)


def test_one_minus_p_keeps_its_digits_in_float32_over_a_large_vocabulary() -> None:
    rows = torch.zeros(1, 128_256)
    rows[0, 0] = 21.0
    rows.requires_grad_()
    log_p = target_log_prob(rows, torch.tensor([0]))
    log_p.sum().backward()
    rest = 128_255 * math.exp(-21)
    assert complement(log_p).item() == pytest.approx(rest / (1 + rest), rel=1e-5)
    assert rows.grad is not None
    assert rows.grad[0, 0].item() == pytest.approx(rest / (1 + rest), rel=1e-5)


@pytest.mark.parametrize("offset", [-1e4, 0.0, 1e4])
def test_target_log_prob_does_not_depend_on_an_offset(offset: float) -> None:
    rows = torch.tensor([[0.0, -1.0, -2.0, -3.0]])  # exact in float32 with the offsets
    labels = torch.tensor([2])
    assert target_log_prob(rows + offset, labels).item() == target_log_prob(rows, labels).item()


@pytest.mark.parametrize("log_p", [-1e-12, -1e-3, -0.5, -math.log(2), -0.7, -5.0, -40.0, -300.0])
def test_log_complement_agrees_with_forty_digits(log_p: float) -> None:
    getcontext().prec = 160
    exact = (1 - Decimal(log_p).exp()).ln()
    found = log_complement(torch.tensor(log_p, dtype=torch.float64)).item()
    assert found == pytest.approx(float(exact), rel=1e-13)


def test_log_complement_of_certainty_is_minus_infinity() -> None:
    assert log_complement(torch.zeros(1)).item() == -math.inf


def test_frozen_stop_gradients_replay_the_first_call() -> None:
    x = torch.tensor(2.0)
    with frozen_stop_gradients() as restart:
        restart()
        assert stop_gradient(x).item() == 2
        restart()
        assert stop_gradient(x + 1).item() == 2
    assert stop_gradient(x + 1).item() == 3
