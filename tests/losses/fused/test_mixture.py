"""Several losses share one pass over the head."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from lossbench import losses
from tests.losses.fused.cases import Problem, assert_same, differentiated

MIXTURES: dict[str, dict[str, Any]] = {
    "targets": {"cross_entropy": {"weight": 0.6, "scope": "sequence"}, "focal": {"weight": 0.4}},
    "one of each path": {
        "cross_entropy": {"weight": 0.3, "scope": "sequence"},
        "goldfish": {"weight": 0.2},
        "squentropy": {"weight": 0.1, "scope": "sequence"},
        "mile": 0.2,
        "brier": 0.3,
        "gem": {"weight": 0.1, "scope": "sequence"},
        "asymmetric": 0.1,
        "emo": {"weight": 0.2},
        "unlikelihood": {"weight": 0.1},
        "generalized_dice": {"weight": 0.3, "scope": "sequence"},
        "lovasz_softmax": {"weight": 0.4},
        "confidence_penalty": 0.1,
        "z_loss": 0.1,
    },
    "emo in the answer only": {"cross_entropy": {"weight": 0.5, "scope": "sequence"}, "emo": 0.5},
    "a second head": {"cross_entropy": 0.6, "token_order_prediction": {"weight": 0.4}},
    "a weight of nothing": {"cross_entropy": 1.0, "gem": 0.0, "lovasz_softmax": 0.0, "mile": 0.0},
    "the same loss twice": {
        "focal": 0.5,
        "harder": {"loss": "focal", "gamma": 5.0, "weight": 0.5, "scope": "sequence"},
    },
}
NORMALIZER = {"answer": 11.0, "sequence": torch.tensor(17.0)}


def problem_of(mixture: losses.Mixture, shape: tuple[int, ...] = (3, 8)) -> tuple[Problem, dict[str, Tensor]]:
    problem = Problem((*mixture.needs, *mixture.optional), shape)
    tokens = problem.case.labels
    answer = tokens.clone()
    answer[..., : shape[-1] // 2] = -100
    return problem, {"answer": answer, "sequence": tokens}


@pytest.mark.parametrize("terms", MIXTURES.values(), ids=MIXTURES)
def test_fused_equals_whole(terms: dict[str, Any]):
    whole, fused = losses.mixture(terms), losses.mixture(terms)
    problem, labels = problem_of(whole)

    def expected(h: Tensor, w: Tensor, b: Tensor) -> Tensor:
        return whole(h @ w.T + b, labels, normalizer=NORMALIZER, **problem.context)

    def found(h: Tensor, w: Tensor, b: Tensor) -> Tensor:
        return losses.linear_terms(
            h, w, labels, fused, b, normalizer=NORMALIZER, chunk_tokens=5, **problem.context
        ).total

    assert_same(differentiated(found, problem.leaves()), differentiated(expected, problem.leaves()), 1e-10)
    values = losses.linear_terms(
        problem.hidden,
        problem.weight,
        labels,
        losses.mixture(terms),
        problem.bias,
        normalizer=NORMALIZER,
        **problem.context,
    ).values
    logits = problem.hidden @ problem.weight.T + problem.bias
    terms_of_whole = losses.mixture(terms).terms(logits, labels, normalizer=NORMALIZER, **problem.context)
    assert list(values) == list(terms_of_whole)
    for name, value in terms_of_whole.items():
        torch.testing.assert_close(values[name], value, rtol=1e-10, atol=1e-12)
        assert not values[name].requires_grad


def test_linear_takes_a_mixture():
    mixture = losses.mixture({"cross_entropy": 0.6, "focal": 0.4})
    problem = Problem()
    assert_same(problem.fused(mixture), problem.whole(mixture), 1e-12)
    with pytest.raises(losses.BadInput, match="reduction 'mean'"):
        problem.fused(mixture, reduction="sum")


def test_weights_follow_the_step():
    mixture = losses.mixture(
        {"cross_entropy": 1.0, "focal": {"weight": {"schedule": "linear", "start": 0, "end": 1, "steps": 4}}}
    )
    problem, labels = problem_of(mixture)
    logits = problem.hidden @ problem.weight.T
    for step in (0, 1, 9):
        found = losses.linear_terms(problem.hidden, problem.weight, labels, mixture, step=step).total
        torch.testing.assert_close(found, mixture(logits, labels, step=step))


def test_what_is_watched_is_logged_and_not_trained():
    mixture = losses.mixture({"focal": {"weight": 1.0, "scope": "sequence"}})
    problem, labels = problem_of(mixture)

    def total(watch: dict[str, str]) -> tuple[losses.fused.Terms, list[Tensor]]:
        leaves = problem.leaves()
        terms = losses.linear_terms(leaves[0], leaves[1], labels, mixture, watch=watch, normalizer=NORMALIZER)
        return terms, list(torch.autograd.grad(terms.total, leaves[:2]))

    (watched, gradients), (alone, expected) = total({"cross_entropy": "answer"}), total({})
    assert_same(gradients, expected, 1e-12)
    assert set(watched.values) - set(alone.values) == {"watch/cross_entropy"}
    torch.testing.assert_close(
        watched.values["watch/cross_entropy"],
        losses.create("cross_entropy")(problem.hidden @ problem.weight.T, labels["answer"], normalizer=11.0),
    )


@pytest.mark.parametrize(("terms", "passes"), [("targets", 1), ("one of each path", 2)])
def test_terms_share_the_products_of_the_head(terms: str, passes: int):
    """A product with the head's weight a chunk and pass, and one more for the hidden states' gradient."""
    mixture = losses.mixture(MIXTURES[terms])
    problem, labels = problem_of(mixture)
    hidden, weight = problem.hidden.requires_grad_(), problem.weight
    with torch.profiler.profile() as profile:
        losses.linear_terms(hidden, weight, labels, mixture, chunk_tokens=1000, **problem.context)
    products = {event.key: event.count for event in profile.key_averages()}
    cosines = 3 if "emo" in mixture.losses else 0
    assert products["aten::mm"] <= 2 + cosines


def test_scopes_whose_labels_contradict_each_other_are_computed_apart():
    mixture = losses.mixture({"cross_entropy": {"weight": 0.5, "scope": "sequence"}, "focal": {"weight": 0.5}})
    problem = Problem()
    labels = {"sequence": problem.labels, "answer": (problem.labels + 1).where(problem.labels != -100, -100) % 23}
    labels["answer"][problem.labels == -100] = -100
    found = losses.linear_terms(problem.hidden, problem.weight, labels, mixture).total
    torch.testing.assert_close(found, mixture(problem.hidden @ problem.weight.T, labels))


def test_a_term_without_tokens_is_zero():
    mixture = losses.mixture(
        {"cross_entropy": {"weight": 0.5, "scope": "sequence"}, "lovasz_softmax": 0.3, "emo": 0.1, "mile": 0.1}
    )
    problem, labels = problem_of(mixture)
    labels["answer"] = torch.full_like(labels["answer"], -100)
    terms = losses.linear_terms(problem.hidden, problem.weight, labels, mixture, **problem.context)
    assert {name for name, value in terms.values.items() if value} == {"cross_entropy"}


@pytest.mark.parametrize(
    "terms",
    [
        {"goldfish": 1.0},
        {"lovasz_softmax": 1.0},
        {"lovasz_softmax": 0.5, "focal": {"weight": 0.3, "scope": "sequence"}, "probability_threshold": 0.2},
    ],
)
def test_a_frozen_head_needs_one_pass_where_the_gradient_is_linear_in_p(terms: dict[str, Any]):
    problem, labels = problem_of(losses.mixture(terms))
    weight, bias = problem.weight, problem.bias

    def expected(h: Tensor) -> Tensor:
        return losses.mixture(terms)(h @ weight.T + bias, labels)

    def found(h: Tensor) -> Tensor:
        return losses.linear_terms(h, weight, labels, losses.mixture(terms), bias, chunk_tokens=1000).total

    leaves = problem.leaves()[:1]
    with torch.profiler.profile() as profile:
        ours = differentiated(found, leaves)
    assert_same(ours, differentiated(expected, leaves), 1e-10)
    assert {event.key: event.count for event in profile.key_averages()}["aten::mm"] == 2
