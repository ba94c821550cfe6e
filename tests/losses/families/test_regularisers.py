"""Cross-entropy with a second term, against torch or a formula written out."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from lossbench import losses
from lossbench.losses.samples import sample

CASE = sample((), (20,), 9)
VALID = CASE.labels != -100
Z, Y = CASE.logits[VALID], CASE.labels[VALID]
LOG_P = Z.log_softmax(1)
P = LOG_P.exp()
NLL = F.cross_entropy(Z, Y).item()


def value(name: str, **params: object) -> float:
    return losses.create(name, **params)(CASE.logits, CASE.labels).item()


def test_uniform_label_smoothing_is_torchs() -> None:
    expected = F.cross_entropy(CASE.logits, CASE.labels, label_smoothing=0.3).item()
    assert value("label_smoothing", smoothing=0.3) == pytest.approx(expected, rel=1e-12)


def test_label_smoothing_without_the_target_spreads_over_the_others() -> None:
    smooth = torch.full_like(P, 0.1 / 8).scatter_(1, Y[:, None], 0.9)
    expected = -(smooth * LOG_P).sum(1).mean().item()
    assert value("label_smoothing", mode="exclude_target") == pytest.approx(expected, rel=1e-12)


def test_z_loss_adds_the_squared_log_partition() -> None:
    assert value("z_loss", coefficient=0.01) == pytest.approx(NLL + 0.01 * Z.logsumexp(1).square().mean().item())


def test_the_confidence_penalty_subtracts_the_entropy() -> None:
    entropy = torch.distributions.Categorical(logits=Z).entropy().mean().item()
    assert value("confidence_penalty", beta=0.5) == pytest.approx(NLL - 0.5 * entropy)


def test_squentropy_adds_the_mean_square_of_the_wrong_logits() -> None:
    wrong = Z.scatter(1, Y[:, None], 0.0)
    assert value("squentropy") == pytest.approx(NLL + (wrong.square().sum(1) / 8).mean().item())
    centred = losses.create("squentropy", center=True)
    assert centred(CASE.logits - 3, CASE.labels).item() == pytest.approx(centred(CASE.logits, CASE.labels).item())


def test_the_asymmetric_loss_equals_its_sum_over_the_vocabulary() -> None:
    onehot = F.one_hot(Y, 9).double()
    smooth = 0.8 * onehot + 0.2 / 9
    weight = torch.where(onehot > 0, (1 - P) ** 1.5, P**3)
    expected = -(smooth * weight * LOG_P).sum(1).mean().item()
    assert value("asymmetric", gamma_pos=1.5, gamma_neg=3.0, smoothing=0.2) == pytest.approx(expected)


def test_logit_clip_bounds_the_norm() -> None:
    norm = Z.norm(dim=1, keepdim=True)
    expected = F.cross_entropy(Z * (2.0 / norm).clamp_max(1), Y).item()
    assert value("logit_clip", tau=2.0) == pytest.approx(expected, rel=1e-6)
    assert value("logit_clip", tau=1e6) == pytest.approx(NLL)


def test_logit_clip_of_zero_logits_has_a_finite_gradient() -> None:
    logits = torch.zeros(1, 4, requires_grad=True)
    losses.create("logit_clip")(logits, torch.tensor([0])).backward()
    assert logits.grad is not None and bool(logits.grad.isfinite().all())


def test_gem_has_the_gradient_of_its_tempered_distribution() -> None:
    logits = Z.clone().requires_grad_()
    losses.create("gem", beta=0.7, h="linear")(logits, Y).backward()
    expected = ((Z / 0.7).softmax(1) - F.one_hot(Y, 9)) / len(Y)
    torch.testing.assert_close(logits.grad, expected)


def test_brier_of_a_certain_mistake_is_two() -> None:
    logits = torch.tensor([[1e4, 0.0]])
    assert losses.create("brier")(logits, torch.tensor([1])).item() == pytest.approx(2)
    assert losses.create("brier")(logits, torch.tensor([0])).item() == 0


@pytest.mark.parametrize("name", ["label_smoothing", "confidence_penalty"])
def test_entropies_keep_their_digits_over_a_large_vocabulary(name: str) -> None:
    logits = torch.randn(1, 128_256, generator=torch.Generator().manual_seed(0))
    label = torch.tensor([5])
    single, double = losses.create(name)(logits, label), losses.create(name)(logits.double(), label)
    assert single.item() == pytest.approx(double.item(), rel=1e-5)
    assert math.isfinite(single.item())
