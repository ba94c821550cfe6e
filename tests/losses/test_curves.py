"""Value and gate against p_t."""

from __future__ import annotations

import pytest
import torch

from lossbench import losses

P = torch.tensor([1e-6, 0.01, 0.1, 0.5, 0.9, 0.999], dtype=torch.float64)
LOG = P.log()

# Gates of the gate family in closed form, from the papers' formulas.
GATES = {
    "cross_entropy": torch.ones_like(P),
    "focal": (1 - P) ** 2 - 2 * P * LOG * (1 - P),
    "poly1": 1 + P,
    "generalized_cross_entropy": P**0.7,
    "comp_sum": P**0.5,
    "mae": P,
    "reverse_cross_entropy": 9.210340371976182 * P,
    "symmetric_cross_entropy": 0.1 + 9.210340371976182 * P,
    "dft": P,
    "mixce": 0.5 + 0.5 * P,
    "tailr": P,
    "dco": 16 * P * (1 - P) ** 15 / (1 - (1 - P) ** 16),
    "tldr": 1 + torch.cos(torch.pi * P) - torch.pi * P * torch.sin(torch.pi * P) * LOG,
    "self_adjusting_dice": P * 3 * (1 - 2 * P) / ((1 - P) * P + 2) ** 2,
    "taylor_cross_entropy": 1 - (1 - P) ** 2,
    "probability_threshold": P * (P >= 0.1),
}


@pytest.mark.parametrize("name", sorted(GATES))
def test_the_gate_is_that_of_the_papers_formula(name: str) -> None:
    _, gate = losses.curve(losses.create(name), P)
    torch.testing.assert_close(gate, GATES[name], rtol=1e-7, atol=1e-12)


def test_the_curve_of_a_batch_loss_is_that_of_a_single_token() -> None:
    value, gate = losses.curve(losses.create("lovasz_softmax"), P)
    torch.testing.assert_close(value, 1 - P)
    torch.testing.assert_close(gate, P)


def test_a_loss_without_its_context_has_no_curve() -> None:
    with pytest.raises(losses.MissingContext, match="needs embedding"):
        losses.curve(losses.create("emo"), P)


def test_probabilities_outside_the_open_interval_are_refused() -> None:
    with pytest.raises(losses.BadInput, match="strictly between 0 and 1"):
        losses.curve(losses.create("focal"), torch.tensor([0.5, 1.0]))


def test_drawing_a_curve_leaves_the_state_alone() -> None:
    loss = losses.create("error_norm_truncation", start_iteration=3)
    losses.curve(loss, P)
    assert int(loss.iteration) == 0
