"""What the tests of the fused head compare: the same loss on whole logits and through `losses.linear`."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lossbench import losses
from lossbench.losses.samples import Sample, sample

GOLDEN = Path(__file__).parents[2] / "golden" / "losses"
VARIANTS: list[tuple[str, dict[str, Any]]] = [
    ("focal", {"gamma": 0.5}),
    ("focal", {"detach_weight": True}),
    ("dco", {"level": "sequence"}),
    ("deft", {"variant": "cayley"}),
    ("label_smoothing", {"mode": "exclude_target"}),
    ("squentropy", {"center": True}),
    ("logit_clip", {"tau": 4.0, "center": True}),
    ("entmax", {"alpha": 1.2}),
    ("error_norm_truncation", {"fraction": 0.25}),
    ("error_norm_truncation", {"start_iteration": 1}),
    ("goldfish", {"strategy": "static", "k": 3}),
    ("loss_truncation", {"min_count": 2, "recompute": 2}),
    ("lovasz_softmax", {"classes": "all"}),
    ("lovasz_softmax", {"classes": [0, 1, 7]}),
    ("lovasz_softmax", {"per_sequence": True}),
    ("generalized_dice", {"absent": "max"}),
    ("jaccard_metric", {"log": True}),
    ("emo", {"mode": "plain"}),
    ("emo", {"mode": "emo2", "detach_target": False, "ratio_cap": None, "scale": 1.0}),
    ("number_token_loss", {"variant": "mse", "reweigh": True}),
    ("eisl", {"ngrams": [1, 3]}),
    ("contrastive_token", {"ct_length": 1.0, "preceding_m": 3}),
    ("focal", {"class_weights": [0.5 + (7 * k) % 23 / 10 for k in range(23)]}),  # the tests' vocabulary is 23
]


def golden_parameters() -> list[tuple[str, dict[str, Any]]]:
    """Every set of parameters in the golden files, as far as it does not depend on the vocabulary of its case."""
    found: list[tuple[str, dict[str, Any]]] = []
    for file in sorted(GOLDEN.glob("*.json")):
        content = json.loads(file.read_text())
        for case in content["cases"]:
            pair = (content["loss"], case["params"])
            if pair not in found and "class_weights" not in case["params"]:
                found.append(pair)
    return found


def all_losses() -> list[tuple[str, dict[str, Any]]]:
    """Every registered loss with its defaults, with the golden files' parameters and with those of `VARIANTS`."""
    found: list[tuple[str, dict[str, Any]]] = [(name, {}) for name in losses.available()]
    return found + [pair for pair in [*golden_parameters(), *VARIANTS] if pair not in found]


def named(pair: tuple[str, dict[str, Any]]) -> str:
    return pair[0] + "".join(f"-{key}={str(value)[:20]}" for key, value in pair[1].items())


class Problem:
    """Hidden states, a head and labels, with the context of some losses."""

    def __init__(
        self,
        names: tuple[str, ...] = (),
        shape: tuple[int, ...] = (3, 8),
        vocabulary: int = 23,
        width: int = 6,
        dtype: torch.dtype = torch.float64,
        **keywords: Any,
    ) -> None:
        self.case: Sample = sample(names, shape, vocabulary, dtype=torch.float64, **keywords)
        generator = torch.Generator().manual_seed(1)

        def normal(*size: int) -> Tensor:
            return torch.randn(*size, generator=generator, dtype=torch.float64).to(dtype)

        self.labels, self.context = self.case.labels, self.case.context
        self.hidden, self.weight, self.bias = normal(*shape, width), normal(vocabulary, width), normal(vocabulary)

    def leaves(self) -> list[Tensor]:
        return [x.clone().requires_grad_() for x in (self.hidden, self.weight, self.bias)]

    def whole(self, loss: Any, **keywords: Any) -> list[Tensor]:
        """Value and gradients on whole logits."""
        return differentiated(lambda h, w, b: loss(h @ w.T + b, self.labels, **self.context, **keywords), self.leaves())

    def fused(self, loss: Any, **keywords: Any) -> list[Tensor]:
        """Value and gradients through the fused head, a few tokens at a time."""
        keywords = {"chunk_tokens": 5, **keywords}
        return differentiated(
            lambda h, w, b: losses.linear(h, w, self.labels, loss, b, **self.context, **keywords), self.leaves()
        )


def differentiated(function: Callable[..., Tensor], leaves: list[Tensor]) -> list[Tensor]:
    """The value, and the gradients of its sum (weighted, where it is no scalar) for the leaves."""
    torch.manual_seed(0)
    value = function(*leaves)
    weights = torch.linspace(1, 2, value.numel(), dtype=value.dtype).view(value.shape)
    found: tuple[Tensor | None, ...] = (None,) * len(leaves)
    if value.requires_grad:
        found = torch.autograd.grad((value * weights).sum(), leaves, allow_unused=True)
    pairs = zip(found, leaves, strict=True)
    return [value.detach(), *(torch.zeros_like(x) if g is None else g for g, x in pairs)]


def assert_same(found: list[Tensor], expected: list[Tensor], tolerance: float) -> None:
    """Each tensor's largest error is at most `tolerance` times its largest entry."""
    for name, a, b in zip(("value", "hidden", "weight", "bias", *"…" * 9), found, expected, strict=False):
        assert a.shape == b.shape, name
        largest = float(b.abs().max()) if b.numel() else 0.0
        error = float((a.double() - b.double()).abs().max()) if b.numel() else 0.0
        assert math.isfinite(error), name
        assert error <= tolerance * max(largest, 1e-12), f"{name}: error {error:.2e}, largest entry {largest:.2e}"
