"""Weights that follow the prediction's confidence."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from lossbench import losses
from lossbench.losses.samples import sample

CASE = sample((), (20,), 30)
VALID = CASE.labels != -100
Z, Y = CASE.logits[VALID], CASE.labels[VALID]
NLL = F.cross_entropy(Z, Y, reduction="none")


def test_mile_weighs_by_entropy_with_mean_one() -> None:
    weight = (1 + torch.distributions.Categorical(logits=Z).entropy()) ** 2
    expected = (weight * NLL).mean() / weight.mean()
    assert losses.create("mile", gamma=2.0)(CASE.logits, CASE.labels).item() == pytest.approx(expected.item())


def test_the_mean_weight_of_mile_leaves_ignored_tokens_out() -> None:
    loss = losses.create("mile")
    assert loss(CASE.logits, CASE.labels).item() == pytest.approx(loss(Z, Y).item(), rel=1e-12)


def test_eaft_weighs_by_the_entropy_of_the_top_logits() -> None:
    top = Z.topk(20, dim=1).values
    weight = torch.distributions.Categorical(logits=top).entropy() / 3.0
    assert losses.create("eaft")(CASE.logits, CASE.labels).item() == pytest.approx((weight * NLL).mean().item())


def test_eaft_works_with_fewer_tokens_than_its_top_k() -> None:
    value = losses.create("eaft", top_k=20)(torch.zeros(1, 4), torch.tensor([0])).item()
    assert value == pytest.approx(math.log(4) / 3 * math.log(4), rel=1e-6)


def test_the_exponent_of_cayley_follows_the_batch() -> None:
    logits = torch.tensor([[2.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
    labels = torch.tensor([0, 0])
    p = logits.softmax(1)[:, 0]
    d = 1 - p + 1e-8
    floor = 0.5 * p.mean()
    a = (floor + (1 - floor) * (1 - d) / (1 + d + 1e-8)).clamp(0.001, 1)
    expected = ((1 - p**a) / (a + 1e-8)).mean().item()
    loss = losses.create("deft", variant="cayley")
    assert loss.scope == "local+stats"
    assert loss(logits, labels).item() == pytest.approx(expected)
