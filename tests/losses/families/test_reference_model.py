"""Losses against a frozen reference or a snapshot."""

from __future__ import annotations

import pytest
import torch

from lossbench import losses
from lossbench.losses.samples import sample

CASE = sample(("ref_logits",), (20,), 7)
VALID = CASE.labels != -100


def test_asft_adds_the_divergence_from_the_reference() -> None:
    p, q = CASE.logits[VALID].log_softmax(1), CASE.context["ref_logits"][VALID].log_softmax(1)
    divergence = torch.distributions.kl_divergence(
        torch.distributions.Categorical(logits=q), torch.distributions.Categorical(logits=p)
    )
    dft = losses.create("dft")(CASE.logits, CASE.labels).item()
    value = losses.create("asft", kl_weight=0.3)(CASE.logits, CASE.labels, **CASE.context)
    assert value.item() == pytest.approx(dft + 0.3 * divergence.mean().item())


def test_asft_gives_the_reference_no_gradient() -> None:
    logits = CASE.logits.clone().requires_grad_()
    reference = CASE.context["ref_logits"].clone().requires_grad_()
    losses.create("asft")(logits, CASE.labels, ref_logits=reference).backward()
    assert reference.grad is None


def test_psft_at_its_snapshot_has_the_gradient_of_cross_entropy() -> None:
    logits = CASE.logits.clone().requires_grad_()
    old = CASE.logits.log_softmax(1).gather(1, CASE.labels.clamp_min(0)[:, None]).squeeze(1)
    value = losses.create("psft")(logits, CASE.labels, old_log_probs=old)
    (gradient,) = torch.autograd.grad(value, logits)
    (expected,) = torch.autograd.grad(losses.create("cross_entropy")(logits, CASE.labels), logits)
    assert value.item() == pytest.approx(-1)
    torch.testing.assert_close(gradient, expected)


@pytest.mark.parametrize(("ratio", "value", "gate"), [(0.5, -0.5, 0.5), (1.2, -1.2, 1.2), (1.5, -1.28, 0.0)])
def test_psft_clips_from_above_only(ratio: float, value: float, gate: float) -> None:
    logits = torch.zeros(1, 2, dtype=torch.float64, requires_grad=True)
    old = torch.tensor([0.5 / ratio], dtype=torch.float64).log()
    found = losses.create("psft")(logits, torch.tensor([0]), old_log_probs=old)
    found.backward()
    assert logits.grad is not None
    assert found.item() == pytest.approx(value)
    assert logits.grad[0].tolist() == pytest.approx([-gate / 2, gate / 2])
