"""Numerical pieces that more than one loss uses; all take and return float32 or float64."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

_recorded: list[Tensor] | None = None  # set while `frozen_stop_gradients` is active
_cursor = 0


def stop_gradient(x: Tensor) -> Tensor:
    """sg(x): a constant for the gradient. Formulas use it, not `detach`, so that checks can hold it constant too."""
    global _cursor
    if _recorded is None:
        return x.detach()
    if _cursor == len(_recorded):
        _recorded.append(x.detach().clone())
    _cursor += 1
    return _recorded[_cursor - 1]


@contextmanager
def frozen_stop_gradients() -> Iterator[Callable[[], None]]:
    """Within, every `stop_gradient` returns what it returned in the first call of the loss.

    Finite differences then see what autograd sees. Yields a function to be called before each call of the loss.
    """
    global _recorded, _cursor

    def restart() -> None:
        global _cursor
        _cursor = 0

    _recorded, _cursor = [], 0
    try:
        yield restart
    finally:
        _recorded = None


class _TargetLogProb(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, labels: Tensor) -> Tensor:
        top, where = rows.max(1, keepdim=True)
        rest = (rows - top).exp_().scatter_(1, where, 0.0).sum(1, keepdim=True).log1p_()
        log_p = (rows.gather(1, labels[:, None]) - top - rest).squeeze(1)
        ctx.save_for_backward(rows, labels, top, rest, log_p)
        return log_p

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        rows, labels, top, rest, log_p = ctx.saved_tensors
        gradient = (rows - top).sub_(rest).exp_().mul_(-grad[:, None])
        return gradient.scatter_(1, labels[:, None], (grad * complement(log_p))[:, None]), None


def target_log_prob(rows: Tensor, labels: Tensor) -> Tensor:
    """log p_t of each row: (n, V), (n,) -> (n,), with gradient onehot - p.

    The largest term is kept out of the sum of exponentials and 1 - p_t is never formed by subtraction: in float32 a
    softmax over 128k tokens otherwise loses a tenth of 1 - p_t at p_t = 0.9999.
    """
    return _TargetLogProb.apply(rows, labels)


def pick(rows: Tensor, labels: Tensor) -> Tensor:
    """rows[i, labels[i]]: (n, V), (n,) -> (n,)."""
    return rows.gather(1, labels[:, None]).squeeze(1)


def complement(log_p: Tensor) -> Tensor:
    """1 - p, exact also where p rounds to 1."""
    return -torch.expm1(log_p)


def log_complement(log_p: Tensor) -> Tensor:
    """log(1 - p) by whichever of the two forms keeps its digits."""
    near_one = log_p > -math.log(2)
    small = torch.log(-torch.expm1(torch.where(near_one, log_p, -1.0)))
    large = torch.log1p(-torch.exp(torch.where(near_one, -1.0, log_p)))
    return torch.where(near_one, small, large)


class _Gated(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, log_p: Tensor, value: Tensor, gate: Tensor) -> Tensor:
        ctx.save_for_backward(gate)
        return value.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (gate,) = ctx.saved_tensors
        return -grad * gate, None, None


def with_gate(log_p: Tensor, value: Tensor, gate: Tensor) -> Tensor:
    """`value` whose derivative with respect to log p is -gate, whatever autograd would have made of the formula."""
    return _Gated.apply(log_p, value.detach(), gate.detach())


class _WithGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, value: Tensor, gradient: Tensor) -> Tensor:
        ctx.save_for_backward(gradient)
        return value.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (gradient,) = ctx.saved_tensors
        return grad[:, None] * gradient, None, None


def with_gradient(rows: Tensor, value: Tensor, gradient: Tensor) -> Tensor:
    """`value` (n,) whose derivative with respect to rows (n, V) is `gradient` (n, V)."""
    return _WithGradient.apply(rows, value.detach(), gradient.detach())


def focal_value(log_p: Tensor, gamma: float) -> Tensor:
    """-(1 - p)^gamma log p."""
    return -(complement(log_p) ** gamma) * log_p


def focal_gate(log_p: Tensor, gamma: float) -> Tensor:
    """(1-p)^gamma - gamma p log p (1-p)^(gamma-1), written with -log p / (1-p) -> 1 so that p = 1 gives its limit."""
    q = complement(log_p)
    ratio = torch.where(q > 0, -log_p / torch.where(q > 0, q, 1.0), 1.0)
    return q**gamma * (1 + gamma * log_p.exp() * ratio)
