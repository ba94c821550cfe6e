"""The rules of `check`: each takes a `Subject` and raises AssertionError with a sentence, or `NotApplicable`."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.gradcheck import GradcheckError, gradcheck

from .context import CONTEXT
from .fused import linear, path
from .inputs import IGNORE_INDEX
from .numerics import frozen_stop_gradients
from .samples import Sample, sample

LARGE_VOCABULARY = 151_936
LARGE_LOGIT = 1e4


class NotApplicable(Exception):  # noqa: N818 - an answer, not an error
    """The rule does not apply to this loss; the message says why."""


class Subject:
    """The loss under test; every call runs a fresh copy with the same random state."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self.scope = getattr(module, "scope", "local")
        self.names = (*getattr(module, "needs", ()), *getattr(module, "optional", ()))
        self.bounds = getattr(module, "bounds", (-math.inf, math.inf))
        self.shift_invariant = getattr(module, "shift_invariant", True)

    def sample(self, *args: object, **keywords: object) -> Sample:
        return sample(self.names, *args, **keywords)  # type: ignore[arg-type]

    def value(self, case: Sample, **keywords: object) -> Tensor:
        torch.manual_seed(0)
        return copy.deepcopy(self.module)(case.logits, case.labels, **keywords, **case.context)

    def gradients(self, case: Sample, **keywords: object) -> tuple[Tensor, list[Tensor]]:
        """Value, and its gradients with respect to the logits (and the second head's logits if it has them)."""
        leaves = {"logits": case.logits.detach().clone().requires_grad_()}
        if "head_logits" in case.context:
            leaves["head_logits"] = case.context["head_logits"].detach().clone().requires_grad_()
        context = {**case.context, **{k: v for k, v in leaves.items() if k != "logits"}}
        value = self.value(replace(case, logits=leaves["logits"], context=context), **keywords)
        assert value.requires_grad, "the value is not attached to the graph of the logits."
        found = torch.autograd.grad(value.sum(), list(leaves.values()), allow_unused=True)
        pairs = zip(leaves.values(), found, strict=True)
        return value.detach(), [torch.zeros_like(x) if g is None else g for x, g in pairs]


def _close(first: Tensor, second: Tensor, rtol: float = 1e-9, atol: float = 1e-12) -> bool:
    return torch.allclose(first.double(), second.double(), rtol=rtol, atol=atol, equal_nan=False)


def ignored_tokens_change_nothing(subject: Subject) -> None:
    case = subject.sample()
    value, gradients = subject.gradients(case)
    hidden = ~case.valid
    for what, filling in (("NaN", math.nan), ("inf", math.inf), ("-inf", -math.inf), ("other numbers", 7.0)):
        context = dict(case.context)
        for name in case.per_token():
            if context[name].is_floating_point():
                context[name] = context[name].clone()
                context[name][hidden] = filling
        logits = case.logits.clone()
        logits[hidden] = filling
        other, others = subject.gradients(replace(case, logits=logits, context=context))
        assert torch.equal(value, other), f"with {what} in ignored logits the value is {other:.6g}, not {value:.6g}."
        same = all(torch.equal(a, b) for a, b in zip(gradients, others, strict=True))
        assert same, f"with {what} in ignored logits the gradient changes."
    assert all(bool((g[hidden] == 0).all()) for g in gradients), "ignored tokens have a gradient."
    if subject.scope != "sequence":
        alone = subject.value(case.tokens_at(case.valid.reshape(-1).nonzero().squeeze(1)))
        assert _close(alone, value), f"the valid tokens alone give {alone:.6g}, not {value:.6g}."


def no_valid_token_gives_zero_with_a_graph(subject: Subject) -> None:
    case = subject.sample()
    case = replace(case, labels=torch.full_like(case.labels, IGNORE_INDEX))
    value, gradients = subject.gradients(replace(case, logits=torch.full_like(case.logits, math.nan)))
    assert value.item() == 0, f"the value is {value.item()}, not 0."
    assert all(bool((g == 0).all()) for g in gradients), "the gradient is not 0."


def gradient_agrees_with_finite_differences(subject: Subject) -> None:
    case = subject.sample((2, 3), 5, ignored=0.2)

    def function(logits: Tensor, head_logits: Tensor | None = None) -> Tensor:
        restart()
        context = dict(case.context) if head_logits is None else {**case.context, "head_logits": head_logits}
        return subject.value(replace(case, logits=logits, context=context)) + 0.0 * logits[0, 0, 0]

    leaves = [case.logits.requires_grad_()]
    if "head_logits" in case.context:
        leaves.append(case.context["head_logits"].requires_grad_())
    with frozen_stop_gradients() as restart:
        try:
            gradcheck(function, leaves, eps=1e-6, atol=1e-6, rtol=1e-4)
        except GradcheckError as error:
            raise AssertionError(
                "the gradient differs from finite differences in float64 (constants of the formula must be written "
                f"with losses.stop_gradient, not detach): {' '.join(str(error).split())[:160]}"
            ) from None


def order_of_tokens_does_not_matter(subject: Subject) -> None:
    if subject.scope == "sequence":
        raise NotApplicable("its scope is sequence: the order of the tokens is part of the formula.")
    case = subject.sample()
    order = torch.randperm(case.labels.numel(), generator=torch.Generator().manual_seed(1))
    value, gradients = subject.gradients(case)
    other, others = subject.gradients(case.tokens_at(order))
    assert _close(value, other), f"the value is {value:.6g}, permuted {other:.6g}."
    for a, b in zip(gradients, others, strict=True):
        assert _close(a.reshape(-1, a.shape[-1])[order], b), "the gradient does not follow the permutation."


def bfloat16_is_computed_in_float32(subject: Subject) -> None:
    case = subject.sample(dtype=torch.bfloat16)
    value, gradients = subject.gradients(case)
    other, others = subject.gradients(case.to(torch.float32))
    assert value.dtype == torch.float32, f"the value of bfloat16 logits is {value.dtype}, not float32."
    assert _close(value, other, 1e-5, 1e-6), f"bfloat16 logits give {value:.6g}, the same in float32 {other:.6g}."
    for a, b in zip(gradients, others, strict=True):
        assert _close(a, b, 1e-2, 1e-5), "the gradients of bfloat16 and float32 logits differ by more than 1 %."


def float32_agrees_with_float64(subject: Subject) -> None:
    case = subject.sample(dtype=torch.float32)
    value, gradients = subject.gradients(case)
    other, others = subject.gradients(case.to(torch.float64))
    assert _close(value, other, 2e-5, 1e-6), f"float32 gives {value:.8g}, float64 {other:.8g}."
    for a, b in zip(gradients, others, strict=True):
        assert _close(a, b, 1e-3, 1e-6), "the gradients in float32 and float64 differ."


def smallest_inputs_work(subject: Subject) -> None:
    for shape, vocabulary in (((1,), 2), ((1, 1), 3), ((2,), 2)):
        value, gradients = subject.gradients(subject.sample(shape, vocabulary, ignored=0.0))
        finite = bool(value.isfinite()) and all(bool(g.isfinite().all()) for g in gradients)
        assert finite, f"with labels {shape} and V = {vocabulary} the value or gradient is not finite."


def reductions_and_normalizer_agree(subject: Subject) -> None:
    case = subject.sample()
    n = int(case.valid.sum())
    mean, total = subject.value(case), subject.value(case, reduction="sum")
    assert _close(mean * n, total), f"mean times n is {mean * n:.6g}, sum is {total:.6g}."
    for divisor in (n, 2.0 * n, torch.tensor(3.0 * n)):
        scaled = subject.value(case, normalizer=divisor)
        expected = total / float(divisor)
        assert _close(scaled, expected), f"with normalizer {float(divisor):g} it is {scaled:.6g}, not {expected:.6g}."
    if getattr(subject.module, "kind", "") == "BatchLoss":
        try:
            subject.value(case, reduction="none")
        except ValueError:
            return
        raise AssertionError("reduction 'none' must be refused: a batch loss has no values of single tokens.")
    values = subject.value(case, reduction="none")
    assert values.shape == case.labels.shape, (
        f"'none' has shape {tuple(values.shape)}, labels {tuple(case.labels.shape)}."
    )
    assert bool((values[~case.valid] == 0).all()), "'none' is not 0 at ignored tokens."
    assert _close(values.sum(), total), f"'none' sums to {values.sum():.6g}, sum is {total:.6g}."


def value_stays_in_its_bounds(subject: Subject) -> None:
    low, high = subject.bounds
    for scale in (0.1, 2.0, 40.0):
        for seed in range(3):
            value = subject.value(subject.sample(scale=scale, seed=seed)).item()
            slack = 1e-6 * (1 + abs(value))
            assert low - slack <= value <= high + slack, f"the value {value:.6g} is outside [{low:g}, {high:g}]."


def large_logits_and_vocabulary_stay_finite(subject: Subject) -> None:
    for vocabulary in (11, LARGE_VOCABULARY):
        case = subject.sample((1, 3), vocabulary, ignored=0.0, dtype=torch.float32)
        for sign in (1.0, -1.0):
            logits = LARGE_LOGIT * case.logits.sign()
            logits[0].scatter_(1, case.labels[0][:, None], sign * LARGE_LOGIT)
            context = dict(case.context)
            if "head_logits" in context:
                context["head_logits"] = logits
            value, gradients = subject.gradients(replace(case, logits=logits, context=context))
            finite = bool(value.isfinite()) and all(bool(g.isfinite().all()) for g in gradients)
            assert finite, (
                f"at logits of {LARGE_LOGIT:g} and V = {vocabulary} the value is {value:g} or a gradient is not."
            )


def accumulation_equals_one_batch(subject: Subject) -> None:
    if subject.scope != "local":
        raise NotApplicable(f"its scope is {subject.scope}: micro-batches change it, which is documented.")
    case = subject.sample((12,))
    n = float(case.valid.sum())
    _, whole = subject.gradients(case, normalizer=n)
    parts = [subject.gradients(case.tokens_at(p), normalizer=n)[1] for p in torch.arange(12).split(5)]
    for i, gradient in enumerate(whole):
        assert _close(torch.cat([p[i] for p in parts]), gradient), (
            "the gradient of micro-batches differs from one batch."
        )


def a_constant_added_to_a_row_changes_nothing(subject: Subject) -> None:
    if not subject.shift_invariant:
        raise NotApplicable("it declares shift_invariant = False.")
    case = subject.sample()
    shift = torch.linspace(-300, 500, case.labels.numel()).reshape(*case.labels.shape, 1)
    value, gradients = subject.gradients(case)
    context = dict(case.context)
    if "head_logits" in context:
        context["head_logits"] = context["head_logits"] + shift
    other, others = subject.gradients(replace(case, logits=case.logits + shift, context=context))
    assert _close(value, other, 1e-8), f"the value is {value:.8g}, shifted {other:.8g}."
    for a, b in zip(gradients, others, strict=True):
        assert _close(a, b, 1e-7, 1e-9), "the gradient changes; set shift_invariant = False if that is meant."


def binding_equals_passing_the_context(subject: Subject) -> None:
    case = subject.sample()
    fixed = {k: v for k, v in case.context.items() if k in CONTEXT and CONTEXT[k].per == "vocabulary"}
    if not fixed:
        raise NotApplicable("it has no context that could be bound.")
    bound = copy.deepcopy(subject.module)
    bound.bind(**fixed)  # type: ignore[operator]
    rest = {k: v for k, v in case.context.items() if k not in fixed}
    assert torch.equal(bound(case.logits, case.labels, **rest), subject.value(case)), (
        "bind then call differs from a call."
    )


def sequences_do_not_leak(subject: Subject) -> None:
    if subject.scope != "sequence":
        raise NotApplicable(f"its scope is {subject.scope}: it does not look at neighbours.")
    case = subject.sample()
    ids = torch.arange(case.labels.shape[0]).repeat_interleave(case.labels.shape[1])
    packed = case.tokens_at(torch.arange(case.labels.numel()))
    packed = replace(packed, context={**packed.context, "sequence_ids": ids})
    rows, together = subject.value(case), subject.value(packed)
    assert _close(rows, together), f"one sequence a row gives {rows:.6g}, packed with sequence_ids {together:.6g}."


def the_fused_head_gives_the_same(subject: Subject) -> None:
    if path(subject.module) == "whole":
        raise NotApplicable("it is computed on whole logits, not fused with the LM head.")
    case = subject.sample()
    generator = torch.Generator().manual_seed(1)
    hidden, weight = (
        torch.randn(*size, generator=generator, dtype=torch.float64, requires_grad=True)
        for size in ((*case.labels.shape, 6), (case.logits.shape[-1], 6))
    )
    whole = subject.value(replace(case, logits=hidden @ weight.T))
    expected = torch.autograd.grad(whole, (hidden, weight))
    torch.manual_seed(0)
    context: dict[str, Any] = dict(case.context)
    fused = linear(hidden, weight, case.labels, copy.deepcopy(subject.module), chunk_tokens=5, **context)
    assert _close(fused, whole), f"losses.linear gives {fused:.8g}, whole logits {whole:.8g}."
    found = torch.autograd.grad(fused, (hidden, weight))
    for name, a, b in zip(("hidden", "weight"), found, expected, strict=True):
        assert _close(a, b, 1e-7, 1e-10), f"losses.linear gives another gradient of {name} than whole logits."


RULES: tuple[Callable[[Subject], None], ...] = (
    ignored_tokens_change_nothing,
    no_valid_token_gives_zero_with_a_graph,
    gradient_agrees_with_finite_differences,
    order_of_tokens_does_not_matter,
    bfloat16_is_computed_in_float32,
    float32_agrees_with_float64,
    smallest_inputs_work,
    reductions_and_normalizer_agree,
    value_stays_in_its_bounds,
    large_logits_and_vocabulary_stay_finite,
    accumulation_equals_one_batch,
    a_constant_added_to_a_row_changes_nothing,
    binding_equals_passing_the_context,
    sequences_do_not_leak,
    the_fused_head_gives_the_same,
)
