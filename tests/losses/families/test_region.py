"""Lovasz, Dice and Jaccard against counts that can be done by hand."""

from __future__ import annotations

import math
import time

import pytest
import torch

from lossbench import losses
from lossbench.losses.samples import sample

# Predictions (one-hot rows) and labels of three classes; class 3 is predicted once and occurs nowhere.
PREDICTED = torch.tensor([0, 0, 1, 1, 2, 3])
LABELS = torch.tensor([0, 1, 1, 1, 2, 2])
INTERSECTION = {0: 1, 1: 2, 2: 1}
UNION = {0: 2, 1: 3, 2: 2}
ONE_MINUS_IOU = sum(1 - INTERSECTION[c] / UNION[c] for c in UNION) / 3


def one_hot_rows(predicted: torch.Tensor, vocabulary: int = 5) -> torch.Tensor:
    return 1e4 * torch.nn.functional.one_hot(predicted, vocabulary).double()


def naive_lovasz(logits: torch.Tensor, labels: torch.Tensor) -> float:
    """The definition, one class and one prefix at a time."""
    p = logits.softmax(1)
    total = []
    for c in labels.unique():
        member = labels == c
        errors = torch.where(member, 1 - p[:, c], p[:, c])
        order = errors.argsort(descending=True)
        jaccard, loss = 0.0, 0.0
        for k in range(1, len(order) + 1):
            wrong = set(order[:k].tolist())
            truth = set(member.nonzero().squeeze(1).tolist())
            current = 1 - len(truth - wrong) / len(truth | wrong)
            loss += errors[order[k - 1]].item() * (current - jaccard)
            jaccard = current
        total.append(loss)
    return sum(total) / len(total)


@pytest.mark.parametrize(("name", "params"), [("lovasz_softmax", {}), ("jaccard_metric", {"smooth": 0.0})])
def test_at_one_hot_rows_the_loss_is_the_mean_of_one_minus_iou(name: str, params: dict[str, float]) -> None:
    value = losses.create(name, **params)(one_hot_rows(PREDICTED), LABELS)
    assert value.item() == pytest.approx(ONE_MINUS_IOU, rel=1e-12)


@pytest.mark.parametrize("seed", range(5))
def test_lovasz_equals_its_definition(seed: int) -> None:
    case = sample((), (1, 15), 6, seed=seed, ignored=0.0)
    logits, labels = case.logits[0], case.labels[0]
    assert losses.create("lovasz_softmax")(logits, labels).item() == pytest.approx(
        naive_lovasz(logits, labels), rel=1e-12
    )


def test_absent_classes_cost_their_largest_probability() -> None:
    case = sample((), (1, 6), 9, ignored=0.0)
    logits, labels = case.logits[0], case.labels[0]
    present = losses.create("lovasz_softmax")(logits, labels).item() * len(labels.unique())
    absent = [c for c in range(9) if c not in labels.tolist()]
    largest = logits.softmax(1).amax(0)[absent].sum().item()
    assert losses.create("lovasz_softmax", classes="all")(logits, labels).item() == pytest.approx(
        (present + largest) / 9
    )
    chosen = [int(labels[0]), absent[0]]
    own = losses.create("lovasz_softmax", classes=[int(labels[0])])(logits, labels).item()
    expected = (own + logits.softmax(1).amax(0)[absent[0]].item()) / 2
    assert losses.create("lovasz_softmax", classes=chosen)(logits, labels).item() == pytest.approx(expected)
    with pytest.raises(losses.BadInput, match="names the token 30 but the logits have 9 classes"):
        losses.create("lovasz_softmax", classes=[30])(logits, labels)


def test_lovasz_per_sequence_is_the_mean_over_sequences() -> None:
    case = sample((), (3, 6), 5)
    loss = losses.create("lovasz_softmax")
    each = [loss(z, y).item() for z, y in zip(case.logits, case.labels, strict=True)]
    assert losses.create("lovasz_softmax", per_sequence=True)(case.logits, case.labels).item() == pytest.approx(
        sum(each) / 3
    )


def test_lovasz_of_a_large_vocabulary_needs_no_loop_over_classes() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(256, 32_000, generator=generator).requires_grad_()
    labels = torch.randint(32_000, (256,), generator=generator)
    start = time.process_time()
    losses.create("lovasz_softmax")(logits, labels).backward()
    assert time.process_time() - start < 5  # the published code takes minutes: a sort for each of 32 000 classes


def naive_generalized_dice(logits: torch.Tensor, labels: torch.Tensor, absent: str) -> float:
    p = logits.softmax(1)
    onehot = torch.nn.functional.one_hot(labels, logits.shape[1]).double()
    count = onehot.sum(0)
    weight = torch.where(count > 0, 1 / count**2, 0.0)
    if absent == "max":
        weight = torch.where(count > 0, weight, weight.max())
    overlap, union = (weight * p * onehot).sum(), (weight * (p + onehot)).sum()
    return 1 - ((2 * overlap + 1e-5) / (union + 1e-5)).item()


@pytest.mark.parametrize("absent", ["zero", "max"])
def test_generalized_dice_equals_its_definition(absent: str) -> None:
    case = sample((), (1, 20), 30, ignored=0.0)
    logits, labels = case.logits[0], case.labels[0]
    value = losses.create("generalized_dice", absent=absent)(logits, labels)
    assert value.item() == pytest.approx(naive_generalized_dice(logits, labels, absent), rel=1e-12)


def test_generalized_dice_has_a_gradient_when_most_classes_are_absent() -> None:
    logits = torch.randn(16, 32_000, generator=torch.Generator().manual_seed(0)).requires_grad_()
    losses.create("generalized_dice")(logits, torch.arange(16)).backward()
    assert logits.grad is not None and logits.grad.norm() > 1e-8  # the published code: 4e-25


def test_tversky_and_its_logarithm_by_hand() -> None:
    logits = one_hot_rows(PREDICTED)
    alpha, beta, smooth = 0.3, 0.7, 0.5
    counts = {0: (1, 1, 0), 1: (2, 0, 1), 2: (1, 0, 1)}  # tp, fp, fn
    scores = [(tp + smooth) / (tp + alpha * fp + beta * fn + smooth) for tp, fp, fn in counts.values()]
    settings = {"alpha": alpha, "beta": beta, "smooth": smooth}
    plain = losses.create("jaccard_metric", **settings)(logits, LABELS)
    squared = losses.create("jaccard_metric", gamma=2.0, **settings)(logits, LABELS)
    logarithm = losses.create("jaccard_metric", log=True, **settings)(logits, LABELS)
    assert plain.item() == pytest.approx(sum(1 - s for s in scores) / 3)
    assert squared.item() == pytest.approx(sum((1 - s) ** 2 for s in scores) / 3)
    assert logarithm.item() == pytest.approx(-sum(math.log(s) for s in scores) / 3)


def test_self_adjusting_dice_pushes_confident_tokens_down() -> None:
    p = torch.linspace(0.01, 0.99, 99, dtype=torch.float64)
    value, gate = losses.curve(losses.create("self_adjusting_dice"), p)
    assert p[value.argmin()].item() == pytest.approx(0.5)
    assert bool((gate[p < 0.495] > 0).all()) and bool((gate[p > 0.505] < 0).all())
    _, monotone = losses.curve(losses.create("self_adjusting_dice", alpha=0.0), p)
    assert bool((monotone > 0).all())


@pytest.mark.parametrize("alpha", [0.0, 0.3, 1.0, 2.0])
def test_self_adjusting_dice_is_finite_where_p_rounds_to_one(alpha: float) -> None:
    logits = torch.tensor([[50.0, 0.0]], requires_grad=True)
    losses.create("self_adjusting_dice", alpha=alpha)(logits, torch.tensor([0])).backward()
    assert logits.grad is not None and bool(logits.grad.isfinite().all())
