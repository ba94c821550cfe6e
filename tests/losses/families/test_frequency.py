"""Losses that know token counts."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from lossbench import losses
from lossbench.losses.samples import sample

CASE = sample((), (20,), 5)
VALID = CASE.labels != -100
Z, Y = CASE.logits[VALID], CASE.labels[VALID]
COUNTS = torch.tensor([100, 10, 1, 0, 1000])


def test_ldam_lowers_the_target_by_the_margin_of_its_class() -> None:
    margin = COUNTS.clamp_min(1).double() ** -0.25
    margin = 0.5 * margin / margin.max()
    lowered = Z - F.one_hot(Y, 5) * margin[Y][:, None]
    value = losses.create("ldam", scale=2.0)(CASE.logits, CASE.labels, class_counts=COUNTS)
    assert value.item() == pytest.approx(F.cross_entropy(2.0 * lowered, Y).item())


def test_logit_adjustment_adds_the_log_prior() -> None:
    prior = COUNTS.clamp_min(1).double()
    expected = F.cross_entropy(Z + 0.5 * (prior / prior.sum()).log(), Y).item()
    value = losses.create("logit_adjustment", tau=0.5)(CASE.logits, CASE.labels, class_counts=COUNTS)
    assert value.item() == pytest.approx(expected)


def test_power_law_decay_is_a_weighted_mean() -> None:
    weight = (COUNTS.double() + 1.0) ** -0.5
    expected = F.cross_entropy(Z, Y, weight=weight).item()
    loss = losses.create("power_law_decay", alpha=0.5, epsilon=1.0)
    assert loss(CASE.logits, CASE.labels, token_frequencies=COUNTS).item() == pytest.approx(expected)


def test_a_frequency_of_zero_needs_an_epsilon() -> None:
    with pytest.raises(losses.BadInput, match="has a 0 and epsilon is 0"):
        losses.create("power_law_decay", epsilon=0.0).bind(token_frequencies=COUNTS)
