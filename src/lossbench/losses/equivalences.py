"""Losses that have the same gradient: report them once, they are one method under several names."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from itertools import combinations
from typing import Any

import torch
from torch import Tensor, nn

from .samples import sample

# Every group is one gradient, up to a positive factor; the equalities are proved numerically in the tests.
SAME_GRADIENT: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "p - Y": [
        ("cross_entropy", {}),
        ("focal", {"gamma": 0.0}),
        ("poly1", {"epsilon": 0.0}),
        ("generalized_cross_entropy", {"q": 0.0}),
        ("comp_sum", {"tau": 1.0}),
        ("mixce", {"eta": 1.0}),
        ("tailr", {"gamma": 0.0}),
        ("dco", {"n_samples": 1}),
        ("label_smoothing", {"smoothing": 0.0}),
        ("z_loss", {"coefficient": 0.0}),
        ("confidence_penalty", {"beta": 0.0}),
        ("symmetric_cross_entropy", {"alpha": 1.0, "beta": 0.0}),
        ("mile", {"gamma": 0.0}),
        ("eaft", {"alpha": 0.0}),
        ("asymmetric", {"gamma_pos": 0.0, "smoothing": 0.0}),
        ("bootstrap", {"beta": 1.0}),
        ("bootstrap", {"mode": "soft", "detach": True}),
        ("bi_tempered", {"t1": 1.0, "t2": 1.0}),
        ("scale_grad", {"gamma": 1.0, "eps": 0.0}),
        ("unlikelihood", {"alpha": 0.0}),
        ("gem", {"beta": 1.0, "h": "linear"}),
        ("probability_threshold", {"objective": "logp", "threshold": 0.0}),
        ("logit_adjustment", {"tau": 0.0}),
        ("power_law_decay", {"alpha": 0.0}),
    ],
    "p_t (p - Y)": [
        ("mae", {}),
        ("dft", {}),
        ("mixce", {"eta": 0.0}),
        ("tailr", {"gamma": 1.0, "min_weight": 0.0}),
        ("generalized_cross_entropy", {"q": 1.0}),
        ("comp_sum", {"tau": 2.0}),
        ("taylor_cross_entropy", {"order": 1}),
        ("probability_threshold", {"objective": "p", "threshold": 0.0}),
        ("asft", {"kl_weight": 0.0}),
        ("reverse_cross_entropy", {}),
    ],
    "p_t^0.7 (p - Y)": [("generalized_cross_entropy", {"q": 0.7}), ("comp_sum", {"tau": 1.7})],
    "p_t^0.5 (p - Y)": [("generalized_cross_entropy", {"q": 0.5}), ("comp_sum", {"tau": 1.5})],
    "(1 + p_t) (p - Y)": [
        ("poly1", {"epsilon": 1.0}),
        ("mixce", {"eta": 0.5}),
        ("symmetric_cross_entropy", {"alpha": 1.0, "beta": 1 / 9.210340371976182}),
    ],
    "(1 + 0.15 p_t) (p - Y)": [
        ("symmetric_cross_entropy", {"alpha": 6.0, "beta": 0.1}),
        ("poly1", {"epsilon": 9.210340371976182 * 0.1 / 6.0}),
    ],
    "focal, gamma = 2": [
        ("focal", {"gamma": 2.0}),
        ("asymmetric", {"gamma_pos": 2.0, "smoothing": 0.0}),
    ],
}


def spelled(name: str, params: Mapping[str, Any]) -> str:
    """`focal(gamma=0)` for messages and pages."""
    inside = ", ".join(f"{k}={v:.4g}" if isinstance(v, float) else f"{k}={v}" for k, v in params.items())
    return f"{name}({inside})" if inside else name


def twins_of(name: str) -> list[str]:
    """Sentences about the losses that share a gradient with this one, in the order of the table."""
    found = []
    for group in SAME_GRADIENT.values():
        for own, params in group:
            if own == name:
                others = [spelled(other, p) for other, p in group if other != name]
                found.append(f"{spelled(name, params)} has the gradient of {', '.join(others)}, up to a factor.")
    return found


def gradient_of(loss: nn.Module, seed: int = 0) -> Tensor:
    """Gradient of the mean with respect to the logits of a fixed float64 sample, flattened."""
    names = (*getattr(loss, "needs", ()), *getattr(loss, "optional", ()))
    case = sample(names, (4, 9), 12, seed=seed)
    logits = case.logits.requires_grad_()
    value = copy.deepcopy(loss)(logits, case.labels, **case.context)
    if not value.requires_grad:  # it looks at another head only
        return torch.zeros(logits.numel(), dtype=logits.dtype)
    (gradient,) = torch.autograd.grad(value, logits, materialize_grads=True)
    return gradient.reshape(-1)


def same_gradient(first: nn.Module, second: nn.Module) -> float | None:
    """Factor c > 0 with gradient of `second` = c times that of `first` on random inputs, or None."""
    factors = []
    for seed in (0, 1):
        a, b = gradient_of(first, seed), gradient_of(second, seed)
        scale = (a @ a).sqrt()
        if not scale or not (b @ b):
            return None
        factor = float(a @ b / (a @ a))
        if factor <= 0 or float((b - factor * a).abs().max()) > 1e-6 * factor * float(scale):
            return None
        factors.append(factor)
    return factors[0] if abs(factors[0] - factors[1]) <= 1e-6 * factors[0] else None


def warn_of_twins(losses: Mapping[str, nn.Module]) -> list[str]:
    """Sentences about pairs of one sweep whose gradients are equal up to a factor: they are not two methods."""
    sentences = []
    for (first, a), (second, b) in combinations(losses.items(), 2):
        factor = same_gradient(a, b)
        if factor is not None:
            times = (
                "the same gradient" if abs(factor - 1) < 1e-6 else f"the same gradient up to the factor {factor:.4g}"
            )
            sentences.append(f"{first} and {second} have {times}: report them as one method.")
    return sentences
