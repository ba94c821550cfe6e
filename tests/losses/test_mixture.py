"""Weighted sums of losses: weights, schedules, scopes, warnings."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from lossbench import losses
from lossbench.losses import BadInput, BadParameter
from lossbench.losses.mixture import Weight

GENERATOR = torch.Generator().manual_seed(0)
LOGITS = torch.randn(2, 5, 7, generator=GENERATOR, dtype=torch.float64)
SEQUENCE = torch.randint(7, (2, 5), generator=GENERATOR)
ANSWER = SEQUENCE.masked_fill(torch.arange(5) < 3, -100)


def test_the_total_is_the_weighted_sum_of_its_terms() -> None:
    mixture = losses.mixture({"cross_entropy": 0.6, "focal": 0.4})
    expected = 0.6 * losses.create("cross_entropy")(LOGITS, ANSWER) + 0.4 * losses.create("focal")(LOGITS, ANSWER)
    assert mixture(LOGITS, ANSWER).item() == pytest.approx(expected.item())


def test_each_term_has_its_own_scope_and_normalizer() -> None:
    mixture = losses.mixture(
        {
            "cross_entropy": {"weight": 0.6, "scope": "sequence"},
            "focal": {"weight": 0.4, "scope": "answer", "gamma": 1.0},
        }
    )
    terms = mixture.terms(LOGITS, {"answer": ANSWER, "sequence": SEQUENCE}, normalizer={"answer": 8, "sequence": 20})
    assert list(terms) == ["cross_entropy", "focal"]
    ce = losses.create("cross_entropy")(LOGITS, SEQUENCE, normalizer=20)
    focal = losses.create("focal", gamma=1.0)(LOGITS, ANSWER, normalizer=8)
    assert terms["cross_entropy"].item() == ce.item()
    assert terms["focal"].item() == focal.item()
    assert mixture.total(terms).item() == pytest.approx(0.6 * ce.item() + 0.4 * focal.item())
    assert mixture.scopes == ("answer", "sequence")


def test_labels_of_a_missing_scope_are_a_sentence() -> None:
    mixture = losses.mixture({"cross_entropy": {"scope": "sequence"}})
    with pytest.raises(BadInput, match=r"scope 'sequence' but labels has only .'answer'"):
        mixture(LOGITS, {"answer": ANSWER})


@pytest.mark.parametrize(
    ("schedule", "values"),
    [
        ("linear", [1.0, 0.75, 0.5, 0.0, 0.0]),
        ("cosine", [1.0, 0.5 + 0.5 * math.cos(math.pi / 4), 0.5, 0.0, 0.0]),
        ("step", [1.0, 1.0, 1.0, 0.0, 0.0]),
    ],
)
def test_a_weight_follows_its_schedule_and_stays_at_its_end(schedule: str, values: list[float]) -> None:
    weight = Weight.parse({"schedule": schedule, "start": 1.0, "end": 0.0, "steps": 100})
    assert [weight.at(step) for step in (0, 25, 50, 100, 10_000)] == pytest.approx(values)


def test_a_scheduled_mixture_is_evaluated_at_the_step() -> None:
    mixture = losses.mixture(
        {"cross_entropy": 1.0, "focal": {"weight": {"schedule": "linear", "start": 0.0, "end": 1.0, "steps": 10}}}
    )
    terms = mixture.terms(LOGITS, ANSWER)
    assert mixture.total(terms, step=0).item() == pytest.approx(terms["cross_entropy"].item())
    assert mixture(LOGITS, ANSWER, step=5).item() == pytest.approx((terms["cross_entropy"] + terms["focal"] / 2).item())


class Broken(losses.RowLoss):
    def value(self, rows: Tensor, batch: losses.Batch) -> Tensor:
        return rows.sum(1) * math.nan


def test_a_term_of_weight_zero_is_reported_but_cannot_spoil_the_total() -> None:
    mixture = losses.mixture({"cross_entropy": 1.0, "broken": {"weight": 0.0, "loss": Broken()}})
    terms = mixture.terms(LOGITS, ANSWER)
    assert math.isnan(terms["broken"].item())
    assert mixture.total(terms).item() == terms["cross_entropy"].item()


def test_when_all_weights_are_zero_at_a_step_the_total_is_zero_with_a_graph() -> None:
    weight = {"schedule": "step", "start": 0.0, "end": 1.0, "steps": 5}
    mixture = losses.mixture({"cross_entropy": {"weight": weight}})
    logits = LOGITS.clone().requires_grad_()
    mixture(logits, ANSWER, step=1).backward()
    assert logits.grad is not None and bool((logits.grad == 0).all())


def test_one_loss_can_stand_twice_under_names_of_its_own() -> None:
    mixture = losses.mixture(
        {"prompt": {"loss": "cross_entropy", "weight": 0.1, "scope": "sequence"}, "answer": {"loss": "cross_entropy"}}
    )
    assert list(mixture.terms(LOGITS, SEQUENCE)) == ["prompt", "answer"]


def test_context_goes_to_the_terms_that_use_it() -> None:
    embedding = torch.randn(7, 3, dtype=torch.float64)
    mixture = losses.mixture({"cross_entropy": 1.0, "emo": 1.0, "goldfish": 1.0})
    assert mixture.needs == ("embedding",)
    assert mixture.optional == ("tokens",)
    passed = mixture(LOGITS, ANSWER, embedding=embedding, tokens=SEQUENCE)
    assert mixture.bind(embedding=embedding)(LOGITS, ANSWER, tokens=SEQUENCE).item() == passed.item()
    with pytest.raises(BadInput, match="Did you mean 'embedding'"):
        mixture.bind(embeddings=embedding)


@pytest.mark.parametrize(
    ("terms", "sentence"),
    [
        ({}, "at least one term"),
        ({"focal": 0.0}, "all weights of the mixture .'focal'. are 0"),
        ({"focal": {"scope": "prompt"}}, "term 'focal': scope is 'prompt'"),
        ({"focal": "0.4"}, "term 'focal': weight must be a number, got '0.4'"),
        ({"focal": {"weight": 1.0, "gama": 1.0}}, "loss 'focal' has no parameter 'gama'"),
        ({"focl": 1.0}, "there is no loss 'focl'"),
        ({"focal": {"weight": {"schedule": "linear", "start": 1.0}}}, "end and steps is missing"),
        ({"focal": {"weight": {"schedule": "sine", "start": 1, "end": 0, "steps": 3}}}, "schedule is 'sine'"),
        ({"focal": {"weight": {"schedule": "linear", "begin": 1, "end": 0, "steps": 3}}}, "no key 'begin'"),
        ({"mine": {"loss": Broken(), "gamma": 1.0}}, "has the module Broken and also parameters"),
        (["focal"], "a mapping of names to weights or settings, got list"),
    ],
)
def test_a_mixture_that_cannot_work_is_a_sentence(terms, sentence: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match=sentence):
        losses.mixture(terms)
    assert issubclass(BadParameter, ValueError)


def test_self_adjusting_dice_without_cross_entropy_is_warned_about() -> None:
    (warning,) = losses.mixture({"self_adjusting_dice": 1.0}).warnings()
    assert "no cross_entropy beside it" in warning and "p_t = 0.5" in warning
    assert losses.mixture({"cross_entropy": 0.6, "self_adjusting_dice": 0.4}).warnings() == []
    assert losses.mixture({"self_adjusting_dice": {"alpha": 0.0}}).warnings() == []


@pytest.mark.parametrize(
    ("terms", "sentence"),
    [
        ({"dft": 1.0}, "not monotone"),
        ({"generalized_dice": 1.0}, "0.6 times cross-entropy"),
        ({"emo": {"mode": "emo2", "ratio_cap": None}}, "never stops pushing"),
        ({"number_token_loss": 1.0}, "only the tokens that are numbers"),
        ({"token_order_prediction": 1.0}, "the second head only"),
    ],
)
def test_known_traps_are_warned_about(terms: dict[str, object], sentence: str) -> None:
    assert any(sentence in warning for warning in losses.mixture(terms).warnings())


def test_mixtures_of_one_sweep_with_the_same_gradient_are_named() -> None:
    sweep = {
        name: losses.mixture({name: params})
        for name, params in {"mae": 1.0, "dft": 1.0, "reverse_cross_entropy": 1.0, "focal": 1.0}.items()
    }
    sentences = losses.warn_of_twins(sweep)
    assert len(sentences) == 3
    assert "mae and dft have the same gradient: report them as one method." in sentences
    assert any("reverse_cross_entropy have the same gradient up to the factor 9.21" in s for s in sentences)
