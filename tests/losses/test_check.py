"""The conformance checks pass for every registered loss, and find what is wrong with others."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lossbench import losses


@pytest.mark.parametrize("name", losses.available())
def test_every_registered_loss_passes(name: str) -> None:
    report = losses.check(name)
    assert report.ok, f"\n{report}"


@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("focal", {"gamma": 0.5}),
        ("focal", {"detach_weight": True}),
        ("generalized_cross_entropy", {"truncation_k": 0.2}),
        ("tailr", {"gamma": 0.1, "min_weight": 0.3}),
        ("dco", {"level": "sequence"}),
        ("self_adjusting_dice", {"alpha": 0.0}),
        ("self_adjusting_dice", {"alpha": 0.5}),
        ("deft", {"variant": "cayley"}),
        ("label_smoothing", {"mode": "exclude_target"}),
        ("squentropy", {"center": True}),
        ("logit_clip", {"tau": 4.0, "center": True}),
        ("gem", {"h": "linear"}),
        ("entmax", {"alpha": 1.2}),
        ("entmax", {"alpha": 2.0}),
        ("bi_tempered", {"t1": 0.5, "t2": 1.5}),
        ("bi_tempered", {"t1": 0.2, "t2": 0.8}),
        ("active_passive", {"active": "nfl", "passive": "mae"}),
        ("active_passive", {"active": "ngce"}),
        ("bootstrap", {"mode": "hard", "beta": 0.8}),
        ("bootstrap", {"detach": True}),
        ("probability_threshold", {"keep": "bottom", "objective": "logp", "threshold": 0.5}),
        ("error_norm_truncation", {"fraction": 0.25}),
        ("goldfish", {"strategy": "static", "k": 3}),
        ("loss_truncation", {"min_count": 2, "recompute": 2}),
        ("lovasz_softmax", {"classes": "all"}),
        ("lovasz_softmax", {"classes": [0, 1]}),
        ("lovasz_softmax", {"per_sequence": True}),
        ("generalized_dice", {"absent": "max"}),
        ("jaccard_metric", {"log": True}),
        ("emo", {"mode": "plain"}),
        ("emo", {"mode": "emo2", "detach_target": False, "ratio_cap": None, "scale": 1.0}),
        ("number_token_loss", {"variant": "mse", "reweigh": True}),
        ("eisl", {"ngrams": [1, 3]}),
        ("contrastive_token", {"ct_length": 1.0, "preceding_m": 3}),
    ],
)
def test_other_variants_pass_too(name: str, params: dict[str, Any]) -> None:
    report = losses.check(losses.create(name, **params))
    assert report.ok, f"\n{report}"


def user_loss(formula: Callable[[Tensor, Tensor, Tensor], Tensor], **attributes: Any) -> nn.Module:
    """A module as somebody else would write it: `formula(logits, labels, mask) -> (N,)` and hand-made reduction."""

    class Mine(nn.Module):
        def forward(
            self, logits: Tensor, labels: Tensor, *, reduction: str = "mean", normalizer: Any = None, **_: Any
        ) -> Tensor:
            flat, target = logits.reshape(-1, logits.shape[-1]), labels.reshape(-1)
            mask = target != -100
            values = formula(flat.float() if flat.dtype == torch.bfloat16 else flat, target.clamp_min(0), mask)
            if reduction == "none":
                return values.reshape(labels.shape)
            total = values.sum()
            return total if reduction == "sum" else total / (normalizer or mask.sum().clamp_min(1))

    module = Mine()
    for name, value in attributes.items():
        setattr(module, name, value)
    return module


def right(logits: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
    nll = F.cross_entropy(logits[mask], labels[mask], reduction="none")
    return torch.zeros_like(logits[:, 0]).masked_scatter(mask, nll)


def masked_by_multiplication(logits: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
    return F.cross_entropy(logits, labels, reduction="none") * mask


def logarithm_of_softmax(logits: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
    p = logits[mask].softmax(1).gather(1, labels[mask][:, None]).squeeze(1)
    return torch.zeros_like(logits[:, 0]).masked_scatter(mask, -p.log())


def wrong_gradient(logits: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
    nll = F.cross_entropy(logits[mask], labels[mask], reduction="none")
    return torch.zeros_like(logits[:, 0]).masked_scatter(mask, nll * nll.detach())


def of_the_batch(logits: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
    values = right(logits, labels, mask)
    return values * values.detach().sum()


def order_matters(logits: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
    return right(logits, labels, mask) * torch.arange(1, len(labels) + 1)


def test_a_module_of_ones_own_passes_without_any_base_class() -> None:
    report = losses.check(user_loss(right, bounds=(0.0, math.inf)))
    assert report.ok, f"\n{report}"


@pytest.mark.parametrize(
    ("formula", "attributes", "rule"),
    [
        (masked_by_multiplication, {}, "ignored tokens change nothing"),
        (logarithm_of_softmax, {}, "large logits and vocabulary stay finite"),
        (wrong_gradient, {}, "gradient agrees with finite differences"),
        (of_the_batch, {}, "accumulation equals one batch"),
        (order_matters, {}, "order of tokens does not matter"),
        (right, {"bounds": (0.0, 1.0)}, "value stays in its bounds"),
        (
            lambda z, y, m: right(z, y, m) + 0.01 * z[:, 0].nan_to_num(0) * m,
            {},
            "a constant added to a row changes nothing",
        ),
        (lambda z, y, m: right((z + 3e4) - 3e4, y, m), {}, "float32 agrees with float64"),
    ],
)
def test_a_broken_loss_fails_the_rule_that_it_breaks(
    formula: Callable[[Tensor, Tensor, Tensor], Tensor], attributes: dict[str, Any], rule: str
) -> None:
    report = losses.check(user_loss(formula, **attributes))
    assert not report.ok
    assert rule in [failure.name for failure in report.failures], f"\n{report}"


def test_a_loss_that_leaks_between_packed_sequences_is_found() -> None:
    class Leaky(losses.RowLoss):
        scope = "sequence"

        def value(self, rows: Tensor, batch: losses.Batch) -> Tensor:
            nll = F.cross_entropy(rows, batch.labels, reduction="none")
            width = batch.shape[-1]  # takes the row for the sequence
            return nll * (batch.index % width + 1)

    assert "sequences do not leak" in [f.name for f in losses.check(Leaky()).failures]


def test_a_loss_can_be_named_by_module_and_attribute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "their_losses.py").write_text(
        "import torch\n\n\nclass Masked(torch.nn.Module):\n"
        "    def forward(self, logits, labels, *, reduction='mean', normalizer=None, **context):\n"
        "        return (logits.sum(-1) * (labels != -100)).mean()\n\n\nnumber = 3\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    report = losses.check("their_losses:Masked")
    assert report.loss == "Masked" and not report.ok
    with pytest.raises(losses.BadInput, match=r"'their_losses:number' is int, not a torch.nn.Module"):
        losses.check("their_losses:number")


def test_the_report_is_a_table_that_says_what_failed() -> None:
    text = str(losses.check(user_loss(masked_by_multiplication)))
    lines = text.split("\n")
    assert lines[0].startswith("Mine fails ")
    assert len(lines) == 16
    line = next(line for line in lines if line.startswith("ignored tokens change nothing"))
    assert "failed" in line and "with NaN in ignored logits the value is nan" in line


def test_a_loss_that_raises_is_a_failed_line_not_a_crash() -> None:
    def explode(*_: Tensor) -> Tensor:
        raise RuntimeError("no such kernel")

    report = losses.check(user_loss(explode))
    assert any("RuntimeError: no such kernel" in f.why for f in report.failures)


def test_checking_leaves_a_stateful_loss_untouched() -> None:
    loss = losses.create("loss_truncation", min_count=1, recompute=2)
    before = {k: v.clone() for k, v in loss.state_dict().items()}
    losses.check(loss)
    assert all(torch.equal(v, before[k]) for k, v in loss.state_dict().items())
