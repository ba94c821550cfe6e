"""Losses over neighbours against slow definitions, one token at a time."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from lossbench import losses
from lossbench.losses.samples import sample

CASE = sample((), (3, 9), 6)


def sequences() -> list[tuple[Tensor, Tensor]]:
    """Valid rows and labels of each sequence."""
    return [(z[y != -100], y[y != -100]) for z, y in zip(CASE.logits, CASE.labels, strict=True)]


@pytest.mark.parametrize("alpha", [0.5, 2.0])
def test_unlikelihood_penalises_earlier_distinct_labels(alpha: float) -> None:
    total, n = 0.0, 0
    for z, y in sequences():
        p = z.softmax(1)
        for t in range(len(y)):
            negatives = set(y[:t].tolist()) - {int(y[t])}
            total += -p[t, y[t]].log().item() - alpha * sum((1 - p[t, c]).log().item() for c in negatives)
            n += 1
    assert losses.create("unlikelihood", alpha=alpha)(CASE.logits, CASE.labels).item() == pytest.approx(total / n)


def test_scale_grad_scales_new_tokens_down() -> None:
    total, n = 0.0, 0
    for z, y in sequences():
        p = z.softmax(1)
        for t in range(len(y)):
            seen = torch.zeros(6, dtype=torch.bool)
            seen[y[:t]] = True
            q = torch.where(seen, p[t], 0.3 * p[t]) + 1e-8
            total -= (q[y[t]] / q.sum()).log().item()
            n += 1
    assert losses.create("scale_grad", gamma=0.3)(CASE.logits, CASE.labels).item() == pytest.approx(total / n)


def test_eisl_equals_its_definition_and_skips_n_grams_that_do_not_fit() -> None:
    values = []
    for z, y in sequences():
        score = z.log_softmax(1)[:, y].clamp_min(-20)
        terms = []
        for n in (1, 3, 50):
            size = len(y) - n + 1
            if size < 1:
                continue
            t = torch.tensor(
                [[sum(score[a + k, b + k] for k in range(n)) / n for b in range(size)] for a in range(size)]
            )
            terms.append(-(t.softmax(0) * t).sum(0).mean())
        values.append(sum(terms) / len(terms))
    expected = float(sum(values) / len(values))
    assert losses.create("eisl", ngrams=[1, 3, 50])(CASE.logits, CASE.labels).item() == pytest.approx(
        expected, rel=1e-6
    )


def test_eisl_of_sequences_shorter_than_every_n_gram_is_zero_with_a_graph() -> None:
    logits = torch.zeros(1, 1, 4, requires_grad=True)
    value = losses.create("eisl", ngrams=[2])(logits, torch.tensor([[1]]))
    value.backward()
    assert value.item() == 0
    assert logits.grad is not None and bool((logits.grad == 0).all())


def test_gumbel_noise_makes_eisl_random_and_leaves_it_near_its_value() -> None:
    loss = losses.create("eisl", gumbel=True)
    torch.manual_seed(0)
    first, second = loss(CASE.logits, CASE.labels).item(), loss(CASE.logits, CASE.labels).item()
    assert first != second
    assert first == pytest.approx(losses.create("eisl")(CASE.logits, CASE.labels).item(), rel=0.5)


@pytest.mark.parametrize("name", ["unlikelihood", "scale_grad", "eisl", "contrastive_token", "loss_truncation"])
def test_another_sequence_of_the_batch_changes_nothing(name: str) -> None:
    settings = {"ct_length": 1.0, "preceding_m": 3} if name == "contrastive_token" else {}
    loss = losses.create(name, **settings)
    z, y = CASE.logits[:1], CASE.labels[:1]
    alone = loss(z, y, reduction="none")
    both = loss(CASE.logits[:2], CASE.labels[:2], reduction="none")[:1]
    # per-token values are rescaled by batch counts; up to that one factor they must not change
    ratio = (both / alone)[y != -100]
    ratio = ratio[ratio.isfinite()]
    torch.testing.assert_close(ratio, ratio[:1].expand_as(ratio))
