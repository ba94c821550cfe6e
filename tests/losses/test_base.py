"""What every loss inherits: checks of the input, selection of valid tokens, reduction, context."""

from __future__ import annotations

import math
from typing import ClassVar

import pytest
import torch
from torch import Tensor

from lossbench import losses
from lossbench.losses import BadInput, Batch, Columns, MissingContext, Statistics

LOGITS = torch.tensor([[[1.0, 2.0, 0.5], [0.0, -1.0, 3.0]], [[2.0, 2.0, 2.0], [9.0, 0.0, 0.0]]])
LABELS = torch.tensor([[1, -100], [2, 0]])


class NegativeLog(losses.TargetLoss):
    """A loss of one line, as a user would write it."""

    def value(self, log_p: Tensor, batch: Batch) -> Tensor:
        return -log_p


class Entropy(losses.StatisticsLoss):
    statistics: ClassVar[tuple[str, ...]] = ("lse", "sum_pz")

    def value(self, statistics: Statistics, batch: Batch) -> Tensor:
        return statistics.entropy


class Undeclared(losses.StatisticsLoss):
    def value(self, statistics: Statistics, batch: Batch) -> Tensor:
        return statistics.sum_z


class Mass(losses.BatchLoss):
    def value(self, columns: Columns, batch: Batch) -> Tensor:
        return columns.log_p.exp().sum()


def test_a_loss_of_one_line_is_cross_entropy() -> None:
    expected = torch.nn.functional.cross_entropy(LOGITS.reshape(-1, 3), LABELS.reshape(-1))
    assert NegativeLog()(LOGITS, LABELS).item() == pytest.approx(expected.item())


def test_none_has_the_shape_of_the_labels_and_zero_where_ignored() -> None:
    values = NegativeLog()(LOGITS, LABELS, reduction="none")
    assert values.shape == LABELS.shape
    assert values[0, 1] == 0
    assert values[1, 0].item() == pytest.approx(math.log(3))


def test_normalizer_replaces_the_number_of_tokens() -> None:
    loss = NegativeLog()
    total = loss(LOGITS, LABELS, reduction="sum")
    assert loss(LOGITS, LABELS).item() == pytest.approx(total.item() / 3)
    assert loss(LOGITS, LABELS, normalizer=torch.tensor(12)).item() == pytest.approx(total.item() / 12)


def test_nan_in_ignored_logits_reaches_neither_value_nor_gradient() -> None:
    logits = LOGITS.clone()
    logits[0, 1] = math.nan
    logits.requires_grad_()
    value = NegativeLog()(logits, LABELS)
    value.backward()
    assert value.item() == NegativeLog()(LOGITS, LABELS).item()
    assert logits.grad is not None and logits.grad[0, 1].tolist() == [0, 0, 0]


def test_no_valid_token_gives_a_zero_with_a_gradient_of_zero() -> None:
    logits = torch.full((2, 3), math.inf, requires_grad=True)
    value = NegativeLog()(logits, torch.tensor([-100, -100]))
    value.backward()
    assert value.item() == 0
    assert logits.grad is not None and bool((logits.grad == 0).all())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32(dtype: torch.dtype) -> None:
    value = NegativeLog()(LOGITS.to(dtype), LABELS)
    assert value.dtype == torch.float32
    assert value.item() == NegativeLog()(LOGITS.to(dtype).float(), LABELS).item()


def test_float64_stays_float64() -> None:
    assert NegativeLog()(LOGITS.double(), LABELS).dtype == torch.float64


def test_autocast_does_not_lower_the_precision_of_a_loss() -> None:
    embedding = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
    loss = losses.create("emo").bind(embedding=embedding)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = loss(LOGITS, LABELS)
    assert inside.item() == loss(LOGITS, LABELS).item()


def test_statistics_keep_their_digits_at_large_logits() -> None:
    offset = 1e4
    value = Entropy()(LOGITS + offset, LABELS)
    assert value.item() == pytest.approx(Entropy()(LOGITS, LABELS).item(), rel=2e-3)  # only the input's own rounding
    assert Entropy()(LOGITS.double() + offset, LABELS).item() == pytest.approx(
        Entropy()(LOGITS, LABELS).item(), rel=1e-6
    )


def test_a_statistic_that_was_not_declared_is_nan_not_silently_slow() -> None:
    assert math.isnan(Undeclared()(LOGITS, LABELS).item())


def test_a_batch_loss_scales_with_the_tokens_and_refuses_single_values() -> None:
    loss = Mass()
    value = loss(LOGITS, LABELS)
    assert loss(LOGITS, LABELS, reduction="sum").item() == pytest.approx(3 * value.item())
    assert loss(LOGITS, LABELS, normalizer=6).item() == pytest.approx(value.item() / 2)
    with pytest.raises(BadInput, match="no values of single tokens"):
        loss(LOGITS, LABELS, reduction="none")


@pytest.mark.parametrize(
    ("logits", "labels", "keywords", "sentence"),
    [
        (LOGITS, LABELS[:1], {}, r"logits have shape \(2, 2, 3\) and labels \(1, 2\)"),
        (LOGITS, torch.tensor([[1, 3], [0, 0]]), {}, "label 3 is outside the vocabulary of 3"),
        (LOGITS, torch.tensor([[1, -7], [0, 0]]), {}, "label -7 is outside"),
        (LOGITS, LABELS.float(), {}, "labels must be integer token ids .* got torch.float32"),
        (LOGITS, LABELS.bool(), {}, "got torch.bool"),
        (LOGITS.long(), LABELS, {}, "logits must be float16.* got torch.int64"),
        (LOGITS[..., :1], LABELS, {}, "at least 2 classes"),
        (LOGITS.tolist(), LABELS, {}, "logits must be a tensor, got list"),
        (LOGITS, LABELS.to("meta"), {}, "labels are on meta but the logits are on cpu"),
        (LOGITS, LABELS, {"reduction": "average"}, "reduction is 'average'"),
        (LOGITS, LABELS, {"normalizer": 0}, "positive number of tokens, got 0"),
        (LOGITS, LABELS, {"normalizer": math.nan}, "got nan"),
        (LOGITS, LABELS, {"normalizer": 3, "reduction": "sum"}, "not in 'sum'"),
        (LOGITS, LABELS, {"embeding": LOGITS}, "'embeding', which is no known context. Did you mean 'embedding'"),
    ],
)
def test_bad_input_is_a_sentence_with_the_value(logits, labels, keywords, sentence: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(BadInput, match=sentence):
        NegativeLog()(logits, labels, **keywords)


@pytest.mark.parametrize(
    ("name", "context", "sentence"),
    [
        ("emo", {"embedding": torch.zeros(4, 2)}, r"embedding has shape \(4, 2\) but must be \(V, H\) with V = 3"),
        ("ldam", {"class_counts": torch.zeros(2)}, r"class_counts has shape \(2,\) but must be \(V,\)"),
        ("asft", {"ref_logits": torch.zeros(2, 3)}, r"ref_logits has shape \(2, 3\)"),
        ("psft", {"old_log_probs": torch.zeros(3)}, r"old_log_probs has shape \(3,\)"),
        ("unlikelihood", {"sequence_ids": torch.zeros(3, dtype=torch.int64)}, "sequence_ids has shape"),
        ("goldfish", {"tokens": torch.zeros(2, 1, dtype=torch.int64)}, "tokens has shape"),
        ("emo", {"embedding": torch.zeros(3, 2, device="meta")}, "embedding is on meta but the logits are on cpu"),
        ("emo", {"embedding": "the head"}, "embedding must be a tensor or numbers, got str"),
        ("ldam", {"class_counts": torch.tensor([1.0, -1.0, 2.0])}, "not negative, got a minimum of -1"),
    ],
)
def test_context_that_does_not_fit_is_a_sentence(name: str, context: dict[str, Tensor], sentence: str) -> None:
    with pytest.raises(BadInput, match=sentence):
        losses.create(name)(LOGITS, LABELS, **context)


def test_missing_context_is_named_with_its_shape_and_the_remedy() -> None:
    with pytest.raises(MissingContext, match=r"loss emo needs embedding \(V, H\).*bind"):
        losses.create("emo")(LOGITS, LABELS)
    with pytest.raises(MissingContext, match=r"loss asft needs ref_logits \(\.\.\., V\).*pass it as keyword"):
        losses.create("asft")(LOGITS, LABELS)


def test_context_that_a_loss_does_not_use_is_left_alone() -> None:
    assert NegativeLog()(LOGITS, LABELS, embedding=torch.zeros(7)).isfinite()


def test_bound_context_follows_the_module_and_stays_out_of_its_state() -> None:
    loss = losses.create("emo").bind(embedding=torch.eye(3))
    assert "bound_embedding" in dict(loss.named_buffers())
    assert loss.state_dict() == {}
    with pytest.raises(BadInput, match="bound context embedding is on meta"):
        loss.to("meta")(LOGITS, LABELS)


def test_context_of_the_tokens_cannot_be_bound() -> None:
    with pytest.raises(BadInput, match="ref_logits belongs to the tokens of a batch"):
        losses.create("asft").bind(ref_logits=LOGITS)


def test_printing_a_loss_shows_its_parameters() -> None:
    assert repr(losses.create("focal", gamma=3)) == "Focal(gamma=3.0, class_weights=None, detach_weight=False)"
