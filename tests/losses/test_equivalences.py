"""Equalities between losses, in value or in gradient, on random tokens."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from lossbench import losses
from lossbench.losses.equivalences import SAME_GRADIENT, gradient_of, same_gradient, spelled, twins_of
from lossbench.losses.registry import parameters
from lossbench.losses.samples import sample

PAIRS = [
    pytest.param(group[0], other, id=f"{spelled(*group[0])}={spelled(*other)}")
    for group in SAME_GRADIENT.values()
    for other in group[1:]
]
CASE = sample(("class_counts", "token_frequencies", "ref_logits"), (4, 9), 12)


def value_of(name: str, **params: Any) -> float:
    return losses.create(name, **params)(CASE.logits, CASE.labels, **CASE.context).item()


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_twins_have_the_same_gradient_up_to_a_factor(first: tuple[str, dict], second: tuple[str, dict]) -> None:
    factor = same_gradient(losses.create(first[0], **first[1]), losses.create(second[0], **second[1]))
    expected = {"reverse_cross_entropy": 9.210340371976182}.get(second[0])
    if second == ("bootstrap", {"mode": "soft", "detach": True}):
        expected = 0.95
    elif second[0] == "poly1" and first[0] == "symmetric_cross_entropy":
        expected = 1 / 6
    elif first == ("poly1", {"epsilon": 1.0}) and second[0] == "mixce":
        expected = 0.5
    assert factor == pytest.approx(expected or 1.0, rel=1e-6)


@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("focal", {"gamma": 0.0}),
        ("poly1", {"epsilon": 0.0}),
        ("generalized_cross_entropy", {"q": 1e-9}),
        ("comp_sum", {"tau": 1.0}),
        ("mixce", {"eta": 1.0}),
        ("tailr", {"gamma": 1e-300}),
        ("dco", {"n_samples": 1}),
        ("label_smoothing", {"smoothing": 0.0}),
        ("z_loss", {"coefficient": 0.0}),
        ("mile", {"gamma": 0.0}),
        ("eaft", {"alpha": 0.0}),
        ("asymmetric", {"gamma_pos": 0.0, "gamma_neg": 7.0, "smoothing": 0.0}),
        ("bootstrap", {"beta": 1.0}),
        ("scale_grad", {"gamma": 1.0, "eps": 0.0}),
        ("bi_tempered", {"t1": 1.0, "t2": 1.0}),
        ("probability_threshold", {"objective": "logp", "threshold": 0.0}),
        ("unlikelihood", {"alpha": 0.0}),
        ("goldfish", {"strategy": "static", "start_position": 100}),
        ("error_norm_truncation", {"threshold": 1.5}),
    ],
)
def test_these_settings_are_cross_entropy_in_value(name: str, params: dict[str, Any]) -> None:
    assert value_of(name, **params) == pytest.approx(value_of("cross_entropy"), rel=1e-7)


def test_taylor_cross_entropy_tends_to_cross_entropy() -> None:
    logits, labels = torch.zeros(1, 3, dtype=torch.float64), torch.tensor([0])
    value = losses.create("taylor_cross_entropy", order=400)(logits, labels)
    assert value.item() == pytest.approx(math.log(3), rel=1e-9)


def test_linear_gem_is_beta_times_cross_entropy_at_temperature_beta_in_gradient() -> None:
    logits = CASE.logits.clone().requires_grad_()
    tempered = 0.7 * losses.create("cross_entropy")(logits / 0.7, CASE.labels)
    (expected,) = torch.autograd.grad(tempered, logits)
    (found,) = torch.autograd.grad(losses.create("gem", beta=0.7, h="linear")(logits, CASE.labels), logits)
    torch.testing.assert_close(found, expected)


def test_emo_with_orthonormal_costs_is_mae() -> None:
    eye = torch.eye(12, dtype=torch.float64)
    emo = losses.create("emo", mode="plain", detach_target=False, scale=1.0).bind(embedding=eye)
    assert emo(CASE.logits, CASE.labels).item() == pytest.approx(value_of("mae"), rel=1e-12)
    assert same_gradient(losses.create("mae"), emo) is None  # the sample's own embedding is not orthonormal
    logits = CASE.logits.clone().requires_grad_()
    (first,) = torch.autograd.grad(emo(logits, CASE.labels), logits)
    (second,) = torch.autograd.grad(losses.create("dft")(logits, CASE.labels), logits)
    torch.testing.assert_close(first, second)


def test_uncapped_emo1_has_the_value_of_cross_entropy() -> None:
    embedding = torch.randn(12, 5, dtype=torch.float64)
    for detach in (False, True):
        emo = losses.create("emo", mode="emo1", detach_target=detach, ratio_cap=None, scale=0.5)
        value = emo(CASE.logits, CASE.labels, embedding=embedding)
        assert value.item() == pytest.approx(value_of("cross_entropy"), rel=1e-8)


def test_symmetric_cross_entropy_is_alpha_times_poly1() -> None:
    epsilon = -math.log(1e-4) * 1.0 / 0.1
    assert value_of("symmetric_cross_entropy") == pytest.approx(0.1 * value_of("poly1", epsilon=epsilon))


def test_brier_is_the_squared_error_norm() -> None:
    valid = CASE.labels != -100
    p = CASE.logits[valid].softmax(1)
    onehot = torch.nn.functional.one_hot(CASE.labels[valid], 12)
    assert value_of("brier") == pytest.approx((p - onehot).square().sum(1).mean().item(), rel=1e-12)


def test_deft_lies_between_cross_entropy_and_mae() -> None:
    flat = torch.zeros(1, 4000, dtype=torch.float64)  # a = 1/4000: nearly cross-entropy
    label = torch.tensor([0])
    assert losses.create("deft")(flat, label).item() == pytest.approx(math.log(4000), rel=1e-2)
    sure = torch.zeros(1, 4, dtype=torch.float64)
    sure[0, 1] = 40.0  # a = 1: mae
    assert losses.create("deft")(sure, label).item() == pytest.approx(1.0, rel=1e-5)


def test_asft_without_its_anchor_is_dft() -> None:
    assert value_of("asft", kl_weight=0.0) == pytest.approx(value_of("dft"), rel=1e-12)


def test_losses_that_differ_are_no_twins() -> None:
    assert same_gradient(losses.create("focal"), losses.create("cross_entropy")) is None
    assert same_gradient(losses.create("brier"), losses.create("mae")) is None
    assert same_gradient(losses.create("loss_truncation"), losses.create("cross_entropy")) is None


def test_the_negative_of_a_loss_is_no_twin() -> None:
    class Negated(losses.TargetLoss):
        def value(self, log_p: torch.Tensor, batch: losses.Batch) -> torch.Tensor:
            return log_p

    assert same_gradient(losses.create("cross_entropy"), Negated()) is None


def test_no_two_default_losses_share_a_gradient_unless_the_table_says_so() -> None:
    names = losses.available()
    gradients = {name: gradient_of(losses.create(name)) for name in names}
    for i, first in enumerate(names):
        for second in names[i + 1 :]:
            a, b = gradients[first], gradients[second]
            if not a.any() or not b.any():
                continue
            cosine = float(a @ b / (a.norm() * b.norm()))
            listed = any(
                {first, second} <= {n for n, p in group if p == {} or _is_default(n, p)}
                for group in SAME_GRADIENT.values()
            )
            assert (cosine > 1 - 1e-12) == listed, (first, second, cosine)


def _is_default(name: str, params: dict[str, Any]) -> bool:
    defaults = parameters(losses.get(name))
    return all(defaults[k] == v for k, v in params.items())


def test_twins_are_told_by_name() -> None:
    assert twins_of("dft")[0].startswith("dft has the gradient of mae, mixce(eta=0), tailr(gamma=1, min_weight=0)")
    assert twins_of("entmax") == []
