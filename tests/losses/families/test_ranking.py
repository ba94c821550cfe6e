"""Contrastive token loss and token order prediction against slow definitions."""

from __future__ import annotations

import pytest
import torch

from lossbench import losses
from lossbench.losses.samples import sample

CASE = sample(("head_logits", "tokens"), (2, 8), 6)


@pytest.mark.parametrize(
    ("ct_length", "preceding_m", "limit", "window"), [(0.5, 0.5, 4, 2), (1.0, 3, 8, 3), (6, 1.0, 6, 6)]
)
def test_contrastive_token_compares_with_the_labels_before(
    ct_length: float, preceding_m: float, limit: int, window: int
) -> None:
    values = []
    for z, y in zip(CASE.logits, CASE.labels, strict=True):
        for t in range(limit):
            if y[t] == -100:
                continue
            before = [int(s) for s in y[max(0, t - window) : t] if s != -100 and s != y[t]]
            values.append(torch.log1p(sum((torch.exp(z[t, s] - z[t, y[t]]) for s in before), torch.tensor(0.0))).item())
    loss = losses.create("contrastive_token", ct_length=ct_length, preceding_m=preceding_m)
    assert loss(CASE.logits, CASE.labels).item() == pytest.approx(sum(values) / len(values))


def order_loss(head: torch.Tensor, tokens: list[int], window: int) -> float:
    """Token order prediction of the first position of `tokens`, by its definition."""
    scores = torch.full((head.numel(),), -torch.inf, dtype=torch.float64)
    for distance, token in reversed(list(enumerate(tokens[: window + 1]))):
        scores[token] = window - distance
    return -(scores.softmax(0) * head.log_softmax(0)).sum().item()


def test_token_order_prediction_ranks_what_comes_within_the_window() -> None:
    window = 3
    head, tokens = CASE.context["head_logits"], CASE.context["tokens"]
    values = [
        order_loss(head[b, t], tokens[b, t:].tolist(), window)
        for b in range(2)
        for t in range(8)
        if CASE.labels[b, t] != -100
    ]
    loss = losses.create("token_order_prediction", window_size=window)
    value = loss(CASE.logits, CASE.labels, head_logits=head, tokens=tokens)
    assert value.item() == pytest.approx(sum(values) / len(values))


def test_token_order_prediction_does_not_look_into_the_next_sequence() -> None:
    head, tokens = CASE.context["head_logits"][:1], CASE.context["tokens"][:1]
    ids = torch.tensor([[0, 0, 0, 1, 1, 1, 1, 1]])
    loss = losses.create("token_order_prediction", window_size=5)
    packed = loss(head, tokens, head_logits=head, tokens=tokens, sequence_ids=ids, reduction="sum")
    parts = [
        loss(head[:, s], tokens[:, s], head_logits=head[:, s], reduction="sum") for s in (slice(0, 3), slice(3, 8))
    ]
    assert packed.item() == pytest.approx(sum(part.item() for part in parts))


def test_token_order_prediction_says_what_it_lacks() -> None:
    loss = losses.create("token_order_prediction")
    with pytest.raises(losses.MissingContext, match="needs head_logits"):
        loss(CASE.logits, CASE.labels)
    with pytest.raises(losses.BadInput, match="needs labels or tokens"):
        loss(head_logits=CASE.context["head_logits"])


def test_token_order_prediction_gives_the_lm_head_no_gradient() -> None:
    logits = CASE.logits.clone().requires_grad_()
    head = CASE.context["head_logits"].clone().requires_grad_()
    losses.create("token_order_prediction")(logits, CASE.labels, head_logits=head).backward()
    assert logits.grad is None
    assert head.grad is not None and bool(head.grad.any())
