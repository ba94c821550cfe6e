"""Values and gradients of the original authors' code, float64, at the tolerance of each file."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from lossbench import losses

GOLDEN = Path(__file__).parents[1] / "golden" / "losses"
FILES = sorted(GOLDEN.glob("*.json"))
TRACES = ("goldfish", "loss_truncation", "token_order_prediction")  # other layout, see the tests below
INTEGER = {"labels", "tokens", "sequence_ids"}


def cases(*names: str, without: tuple[str, ...] = ()) -> list[Any]:
    found = []
    for file in FILES:
        content = json.loads(file.read_text())
        if (not names and content["loss"] not in without) or content["loss"] in names:
            found += [pytest.param(content["loss"], case, id=case["id"]) for case in content["cases"]]
    return found


def tensor(name: str, value: Any) -> torch.Tensor:
    if name in INTEGER:
        return torch.tensor(value, dtype=torch.int64)
    if name == "token_values":
        value = [math.nan if v is None else v for v in value]
    return torch.tensor(value, dtype=torch.float64)


def test_there_is_a_golden_file_for_every_loss() -> None:
    assert {file.stem for file in FILES} <= set(losses.available())
    assert len(FILES) == 51


@pytest.mark.parametrize(("name", "case"), cases(without=TRACES))
def test_value_and_gradient_of_the_original_code(name: str, case: dict[str, Any]) -> None:
    loss = losses.create(name, **case["params"])
    context = {k: tensor(k, v) for k, v in case["inputs"].items()}
    logits = context.pop("logits").requires_grad_()
    labels = context.pop("labels")

    value = loss(logits, labels, **context)
    value.backward()

    expected = torch.tensor(case["expected"]["grad_logits"], dtype=torch.float64)
    assert value.item() == pytest.approx(
        case["expected"]["loss"], rel=case["tolerance"]["rtol"], abs=case["tolerance"]["atol"]
    )
    torch.testing.assert_close(logits.grad, expected, **case["tolerance"])


@pytest.mark.parametrize(("name", "case"), cases("token_order_prediction"))
def test_token_order_prediction_on_the_second_head(name: str, case: dict[str, Any]) -> None:
    loss = losses.create(name, **case["params"])
    head_logits = tensor("head_logits", case["inputs"]["head_logits"]).requires_grad_()
    tokens = tensor("tokens", case["inputs"]["tokens"])
    labels = tokens[:, : head_logits.shape[1]]

    value = loss(torch.zeros_like(head_logits), labels, head_logits=head_logits, tokens=tokens)
    value.backward()

    expected = torch.tensor(case["expected"]["grad_head_logits"], dtype=torch.float64)
    assert value.item() == pytest.approx(case["expected"]["loss"], rel=case["tolerance"]["rtol"])
    torch.testing.assert_close(head_logits.grad, expected, **case["tolerance"])
    assert loss(head_logits=head_logits, tokens=tokens).item() == value.item()


@pytest.mark.parametrize(("name", "case"), cases("goldfish"))
def test_goldfish_drops_the_positions_of_the_original(name: str, case: dict[str, Any]) -> None:
    loss = losses.create(name, **case["params"])
    tokens = tensor("tokens", case["inputs"]["tokens"])
    expected = torch.tensor(case["expected"]["dropped"], dtype=torch.bool)
    assert torch.equal(loss.dropped(tokens), expected)

    labels = tokens % 7
    values = loss(torch.zeros(*tokens.shape, 7), labels, tokens=tokens, reduction="none")
    assert torch.equal(values == 0, expected)
    if check := case.get("hash_table_check"):
        assert loss.table[:8].tolist() == pytest.approx(check["first8"], abs=0)


@pytest.mark.parametrize(("name", "case"), cases("loss_truncation"))
def test_loss_truncation_follows_the_trace_of_the_original(name: str, case: dict[str, Any]) -> None:
    loss = losses.create(name, **case["params"])
    expected = case["expected"]
    for losses_of_step, mask, threshold in zip(
        case["inputs"]["sequence_losses_per_step"],
        expected["keep_mask_per_step"],
        expected["threshold_after_step"],
        strict=True,
    ):
        assert loss.keep(torch.tensor(losses_of_step, dtype=torch.float64)).int().tolist() == mask
        assert loss.threshold.item() == threshold
