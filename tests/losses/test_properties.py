"""Invariants of losses on generated logits and labels."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lossbench import losses
from lossbench.losses.samples import Sample, sample

NAMES = losses.available()
SEEDS = st.integers(0, 2**20)
FEW = settings(max_examples=8, deadline=None, derandomize=True)


def case_for(loss: losses.Loss, seed: int, scale: float = 2.0, **keywords: float) -> Sample:
    generator = torch.Generator().manual_seed(seed)
    rows, length, vocabulary = (int(torch.randint(a, b, (), generator=generator)) for a, b in ((1, 4), (1, 9), (2, 20)))
    return sample((*loss.needs, *loss.optional), (rows, length), vocabulary, seed=seed, scale=scale, **keywords)


@pytest.mark.parametrize("name", NAMES)
@FEW
@given(seed=SEEDS, scale=st.floats(0.01, 60))
def test_value_and_gradient_are_finite_and_in_bounds(name: str, seed: int, scale: float) -> None:
    loss = losses.create(name)
    case = case_for(loss, seed, scale)
    context = dict(case.context)
    logits = case.logits.clone().requires_grad_()
    if "head_logits" in context:
        context["head_logits"] = logits
    value = loss(logits, case.labels, **context)
    (gradient,) = torch.autograd.grad(value, logits)
    low, high = loss.bounds
    assert math.isfinite(value.item()) and bool(gradient.isfinite().all())
    assert low - 1e-9 * (1 + abs(value.item())) <= value.item() <= high + 1e-9 * (1 + abs(value.item()))
    assert bool((gradient[case.labels == -100] == 0).all())


@pytest.mark.parametrize("name", [n for n in NAMES if losses.create(n).shift_invariant])
@FEW
@given(seed=SEEDS)
def test_the_gradient_of_a_shift_invariant_loss_sums_to_zero_in_every_row(name: str, seed: int) -> None:
    loss = losses.create(name)
    case = case_for(loss, seed)
    context = dict(case.context)
    logits = case.logits.clone().requires_grad_()
    if "head_logits" in context:
        context["head_logits"] = logits
    (gradient,) = torch.autograd.grad(loss(logits, case.labels, **context, reduction="sum"), logits)
    assert gradient.sum(-1).abs().max().item() < 1e-9 * (1 + gradient.abs().max().item())


@pytest.mark.parametrize("name", [n for n in NAMES if losses.create(n).scope == "local"])
@FEW
@given(seed=SEEDS, cut=st.floats(0, 1))
def test_a_local_loss_is_the_sum_of_its_parts(name: str, seed: int, cut: float) -> None:
    loss = losses.create(name)
    case = case_for(loss, seed)
    flat = torch.arange(case.labels.numel())
    at = int(cut * len(flat))
    whole = loss(case.logits, case.labels, **case.context, normalizer=7)
    parts = [case.tokens_at(part) for part in (flat[:at], flat[at:])]
    total = sum(loss(p.logits, p.labels, **p.context, normalizer=7).item() for p in parts)
    assert total == pytest.approx(whole.item(), rel=1e-9, abs=1e-12)


@FEW
@given(seed=SEEDS, gamma=st.floats(0, 6))
def test_focal_lies_between_zero_and_cross_entropy(seed: int, gamma: float) -> None:
    case = case_for(losses.create("focal"), seed)
    focal = losses.create("focal", gamma=gamma)(case.logits, case.labels, reduction="none")
    nll = losses.create("cross_entropy")(case.logits, case.labels, reduction="none")
    assert bool((focal >= 0).all()) and bool((focal <= nll + 1e-12).all())


@FEW
@given(seed=SEEDS, n=st.integers(1, 1000))
def test_dco_lies_between_zero_and_cross_entropy(seed: int, n: int) -> None:
    case = case_for(losses.create("dco"), seed)
    dco = losses.create("dco", n_samples=n)(case.logits, case.labels, reduction="none")
    nll = losses.create("cross_entropy")(case.logits, case.labels, reduction="none")
    assert bool((dco >= 0).all()) and bool((dco <= nll + 1e-12).all())


@FEW
@given(seed=SEEDS, alpha=st.floats(1.01, 4))
def test_the_fenchel_young_loss_is_never_negative(seed: int, alpha: float) -> None:
    case = case_for(losses.create("entmax"), seed)
    values = losses.create("entmax", alpha=alpha)(case.logits, case.labels, reduction="none")
    assert values.min().item() >= -1e-9


@FEW
@given(seed=SEEDS, order=st.integers(1, 30))
def test_taylor_orders_rise_towards_cross_entropy(seed: int, order: int) -> None:
    case = case_for(losses.create("mae"), seed)
    low, high = (
        losses.create("taylor_cross_entropy", order=k)(case.logits, case.labels).item() for k in (order, order + 1)
    )
    assert low <= high <= losses.create("cross_entropy")(case.logits, case.labels).item() + 1e-12
