"""EMO and the number token loss: identities, hazards, slow definitions."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from lossbench import losses
from lossbench.losses.samples import sample

CASE = sample(("embedding", "token_values"), (20,), 9)
VALID = CASE.labels != -100
Z, Y = CASE.logits[VALID], CASE.labels[VALID]
EMBEDDING = CASE.context["embedding"]
NAN = float("nan")


def emo(mode: str, detach: bool, cap: float | None = None, scale: float = 1.0) -> losses.Loss:
    return losses.create("emo", mode=mode, detach_target=detach, ratio_cap=cap, scale=scale)


def expected_cost() -> torch.Tensor:
    cosine = F.cosine_similarity(EMBEDDING[:, None], EMBEDDING[None], dim=2)
    return (Z.softmax(1) * (1 - cosine[Y])).sum(1)


def test_the_cost_of_emo_is_the_expected_cosine_distance() -> None:
    value = emo("plain", False)(CASE.logits, CASE.labels, embedding=EMBEDDING)
    assert value.item() == pytest.approx(expected_cost().mean().item())


def test_emo2_has_twice_its_cost_as_value() -> None:
    value = emo("emo2", False, scale=0.5)(CASE.logits, CASE.labels, embedding=EMBEDDING)
    assert value.item() == pytest.approx(expected_cost().mean().item(), rel=1e-8)


def test_the_ratio_of_emo1_is_capped() -> None:
    cost, nll = expected_cost(), F.cross_entropy(Z, Y, reduction="none")
    ratio = (nll / (cost + 1e-10)).clamp_max(0.7)
    value = emo("emo1", False, cap=0.7, scale=0.5)(CASE.logits, CASE.labels, embedding=EMBEDDING)
    assert value.item() == pytest.approx(0.5 * (nll + ratio * cost).mean().item())


def test_a_zero_row_of_the_embedding_costs_one_and_spoils_nothing() -> None:
    padded = EMBEDDING.clone()
    padded[-1] = 0
    logits = torch.zeros(1, 9, dtype=torch.float64)
    logits[0, -1] = 1e3  # all mass on the padded token
    value = emo("plain", False)(logits, torch.tensor([0]), embedding=padded)
    assert value.item() == pytest.approx(1.0)


@pytest.mark.parametrize(("detach", "rests"), [(True, False), (False, True)])
def test_emo2_with_detached_target_never_stops_pushing(detach: bool, rests: bool) -> None:
    logits = torch.zeros(1, 9)
    logits[0, 0] = 18.0
    logits.requires_grad_()
    emo("emo2", detach)(logits, torch.tensor([0]), embedding=EMBEDDING.float()).backward()
    assert logits.grad is not None
    assert (logits.grad.abs().max().item() < 1e-5) == rests


def test_emo_in_bfloat16_has_no_exploding_ratio() -> None:
    logits = torch.zeros(1, 9)
    logits[0, 0] = 10.0
    logits = logits.bfloat16().requires_grad_()
    emo("emo1", False, scale=0.5)(logits, torch.tensor([0]), embedding=EMBEDDING.bfloat16()).backward()
    assert logits.grad is not None and logits.grad.abs().max().item() < 1e-2


@pytest.mark.parametrize("reweigh", [False, True])
@pytest.mark.parametrize("variant", ["wasserstein", "mse"])
def test_the_number_token_loss_equals_its_definition(variant: str, reweigh: bool) -> None:
    values = torch.tensor([NAN, 0.0, 1.0, 2.5, NAN, 10.0, NAN, NAN, NAN], dtype=torch.float64)
    number = ~values.isnan()
    found = []
    for z, y in zip(Z, Y, strict=True):
        if not number[y]:
            continue
        p, v = z[number].softmax(0), values[number]
        if variant == "wasserstein":
            f, widest = (p * (v - values[y]).abs()).sum(), 10.0
        else:
            f, widest = ((p * v).sum() - values[y]) ** 2, 100.0
        mass = z.softmax(0)[number].sum()
        found.append((f * mass + 1.01 * widest * (1 - mass) if reweigh else f).item())
    loss = losses.create("number_token_loss", variant=variant, reweigh=reweigh)
    value = loss(CASE.logits, CASE.labels, token_values=values)
    assert value.item() == pytest.approx(sum(found) / len(found))


def test_a_batch_without_numbers_gives_zero_with_a_graph() -> None:
    logits = torch.randn(3, 4, requires_grad=True)
    value = losses.create("number_token_loss")(logits, torch.tensor([0, 1, 0]), token_values=[NAN, NAN, 3.0, 4.0])
    value.backward()
    assert value.item() == 0
    assert logits.grad is not None and bool((logits.grad == 0).all())


def test_a_vocabulary_without_numbers_gives_zero_too() -> None:
    values = torch.full((4,), NAN)
    assert losses.create("number_token_loss")(torch.randn(2, 4), torch.tensor([0, 1]), token_values=values).item() == 0
