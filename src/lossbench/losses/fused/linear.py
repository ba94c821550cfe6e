"""LM head and loss in one step: the public functions, and the choice of a path for every loss."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..base import BatchLoss, Loss
from ..batch import Batch
from ..context import check_names
from ..errors import BadInput
from ..inputs import IGNORE_INDEX, check_inputs
from ..mixture import Mixture, _of_scope, _uses
from ..registry import create
from .engine import FusedHead, Job
from .head import LowRank
from .paths import path, rows_of, term_of
from .plan import Plan, cosines_at_once, plan
from .terms import Term


@dataclass(frozen=True)
class Terms:
    """What `linear_terms` returns."""

    total: Tensor  # weighted sum, to be differentiated
    values: dict[str, Tensor]  # unweighted value of each term, without graph


def linear(
    hidden: Tensor,
    weight: Tensor,
    labels: Tensor,
    loss: nn.Module,
    bias: Tensor | None = None,
    *,
    low_rank: LowRank | Sequence[LowRank] = (),
    chunk_tokens: int | None = None,
    memory_bytes: int | None = None,
    reduction: str = "mean",
    normalizer: float | Tensor | None = None,
    **context: Any,
) -> Tensor:
    """The value of `loss(hidden @ weight.T + bias, labels, ...)` and its gradients, without the logits of all tokens.

    Exact for every loss; see `path` for which one takes which way. Ignored tokens never enter a product. The gradients
    are made in the forward pass where `reduction` is mean or sum. There is no second derivative.

    Args:
        hidden: (..., H) last hidden states, already aligned with the labels.
        weight: (V, H) of the head, in the dtype of `hidden` (any, under autocast).
        labels: (...) token ids, -100 = ignored.
        loss: a registered loss, a `Mixture` or a module of your own with `forward(logits, labels, ...)`.
        bias: (V,) of the head.
        low_rank: additions to the head's weight, such as LoRA's.
        chunk_tokens: exactly how many tokens' logits exist at a time. By default the logits of up to H tokens lie in
            the memory of the weight's gradient, and of the others as many exist at a time as fit 24 to 32 MiB (at least
            128 in float32, 512 in bfloat16).
        memory_bytes: what may be held beyond inputs and returned gradients, where less than the default is wanted.
        reduction, normalizer, context: as in a call of the loss.

    Raises:
        BadInput: shapes, dtypes or devices do not fit together.
    """
    if isinstance(loss, Mixture):
        if reduction != "mean":
            raise BadInput(f"a mixture is fused with reduction 'mean', not {reduction!r}; fuse its losses one by one.")
        return linear_terms(
            hidden,
            weight,
            labels,
            loss,
            bias,
            low_rank=low_rank,
            chunk_tokens=chunk_tokens,
            memory_bytes=memory_bytes,
            normalizer=normalizer,
            **context,
        ).total
    head = _Inputs(hidden, weight, bias, _sequence(low_rank), chunk_tokens, memory_bytes)
    part = _Part("loss", loss, labels, 1.0, normalizer, reduction, context)
    head.check(part)
    if path(loss) == "whole":
        return _whole(head, part)
    return _fused(head, [part])[1]


def linear_terms(
    hidden: Tensor,
    weight: Tensor,
    labels: Tensor | Mapping[str, Tensor],
    mixture: Mixture,
    bias: Tensor | None = None,
    *,
    low_rank: LowRank | Sequence[LowRank] = (),
    chunk_tokens: int | None = None,
    memory_bytes: int | None = None,
    normalizer: float | Tensor | Mapping[str, Any] | None = None,
    step: int = 0,
    watch: Mapping[str, str] | None = None,
    **context: Any,
) -> Terms:
    """All terms of a mixture in one pass over the head: their weighted sum, to be differentiated, and their values.

    Args:
        labels, normalizer: one for all terms or one a scope, as in `Mixture.terms`.
        step: optimizer step, for weights that change.
        watch: further registered losses by scope, e.g. {"cross_entropy": "answer"}, whose values are wanted for a log;
            they are part of `values` as "watch/cross_entropy" and have no gradient.
        hidden, weight, bias, low_rank, chunk_tokens, memory_bytes, context: as in `linear`.
    """
    check_names(context, (*mixture.needs, *mixture.optional), "the mixture")
    head = _Inputs(hidden, weight, bias, _sequence(low_rank), chunk_tokens, memory_bytes)
    parts = [
        _Part(
            name,
            loss,
            _of_scope(labels, scope := mixture.settings[name].scope, "labels"),
            mixture.weight(name, step),
            _of_scope(normalizer, scope, "normalizer"),
            "mean",
            context,
        )
        for name, loss in mixture.losses.items()
    ]
    for name, scope in (watch or {}).items():
        given = _of_scope(normalizer, scope, "normalizer")
        parts.append(_Part(f"watch/{name}", create(name), _of_scope(labels, scope, "labels"), 0.0, given, "mean", {}))
    values: dict[str, Tensor] = {}
    totals: list[Tensor] = []
    for part in parts:
        head.check(part)
    for group in _agreeing([part for part in parts if path(part.loss) != "whole"]):
        found, total = _fused(head, group)
        values |= found
        totals.append(total)
    for part in parts:
        if path(part.loss) == "whole":
            value = _whole(head, part)
            values[part.name] = value.detach()
            if part.weight:
                totals.append(part.weight * value)
    return Terms(torch.stack(totals).sum(0) if totals else hidden.sum() * 0, {p.name: values[p.name] for p in parts})


@dataclass(frozen=True)
class _Part:
    """One loss with its labels, weight and reduction."""

    name: str
    loss: Any
    labels: Tensor
    weight: float
    normalizer: Any
    reduction: str
    context: Mapping[str, Any]


@dataclass(frozen=True)
class _Inputs:
    """The head as it was passed."""

    hidden: Tensor
    weight: Tensor
    bias: Tensor | None
    low_rank: tuple[LowRank, ...]
    chunk_tokens: int | None
    memory_bytes: int | None

    def check(self, part: _Part) -> None:
        """Raise a sentence for what does not fit together."""
        hidden, weight = self.hidden, self.weight
        if not (isinstance(hidden, Tensor) and hidden.is_floating_point() and hidden.dim() > 0):
            raise BadInput(f"hidden must be a floating-point tensor (..., H), got {_kind(hidden)}.")
        if not isinstance(weight, Tensor) or weight.dim() != 2 or weight.shape[1] != hidden.shape[-1]:
            raise BadInput(f"weight must be (V, H) with H = {hidden.shape[-1]} as in hidden, got {_kind(weight)}.")
        shapes: list[tuple[str, Tensor | None, tuple[int, ...]]] = [("bias", self.bias, (weight.shape[0],))]
        for low in self.low_rank:
            shapes.append(("low_rank.down", low.down, (low.down.shape[0], weight.shape[1])))
            shapes.append(("low_rank.up", low.up, (weight.shape[0], low.down.shape[0])))
        for name, tensor, shape in shapes:
            if tensor is not None and tuple(tensor.shape) != shape:
                raise BadInput(f"{name} must have the shape {shape}, got {_kind(tensor)}.")
        if weight.dtype != hidden.dtype and not torch.is_autocast_enabled(hidden.device.type):
            raise BadInput(f"hidden is {hidden.dtype} but weight is {weight.dtype}; cast one of them, or use autocast.")
        for name, value, what in (
            ("chunk_tokens", self.chunk_tokens, "number of tokens"),
            ("memory_bytes", self.memory_bytes, "number of bytes"),
        ):
            if value is not None and (isinstance(value, bool) or value < 1):
                raise BadInput(f"{name} must be a whole {what}, at least 1, got {value!r}.")
        if isinstance(part.loss, Loss):  # a view of a single number has the shape of the logits and no memory
            logits = hidden.new_zeros(1).expand(*hidden.shape[:-1], weight.shape[0])
            check_inputs(logits, part.labels, part.reduction, part.normalizer)

    @property
    def product(self) -> torch.dtype:
        """The dtype of the matrix products."""
        device = self.hidden.device.type
        if torch.is_autocast_enabled(device) and self.hidden.dtype != torch.float64:
            return torch.get_autocast_dtype(device)
        return self.hidden.dtype

    def logits(self) -> Tensor:
        """(..., V) whole logits, differentiable."""
        logits = torch.nn.functional.linear(self.hidden, self.weight, self.bias)
        for low in self.low_rank:
            logits = logits + torch.nn.functional.linear(low.inputs(self.hidden), low.up)
        return logits


def _whole(head: _Inputs, part: _Part) -> Tensor:
    """The loss as it stands; one that works on the logits of another head gets no logits of this one."""
    keywords = {"reduction": part.reduction, "normalizer": part.normalizer, **_of_loss(part)}
    logits = None if "head_logits" in getattr(part.loss, "needs", ()) else head.logits()
    return part.loss(logits, part.labels, **keywords)


def _of_loss(part: _Part) -> dict[str, Any]:
    """The context that a loss of one's own can take; registered ones leave out what they do not use themselves."""
    if isinstance(part.loss, Loss):
        return dict(part.context)
    return {k: v for k, v in part.context.items() if k in _uses(part.loss)} if _uses(part.loss) else dict(part.context)


def _agreeing(parts: Sequence[_Part]) -> list[list[_Part]]:
    """Parts in groups whose labels do not contradict each other, so that a group shares log p of one label a token."""
    groups: list[list[_Part]] = []
    merged: list[Tensor] = []
    for part in parts:
        labels = part.labels.reshape(-1).to(torch.int64)
        for k, known in enumerate(merged):
            both = (known != IGNORE_INDEX) & (labels != IGNORE_INDEX)
            if labels is known or bool((known == labels)[both].all()):
                merged[k] = torch.where(known == IGNORE_INDEX, labels, known)
                groups[k].append(part)
                break
        else:
            groups.append([part])
            merged.append(labels)
    return groups


def _fused(head: _Inputs, parts: Sequence[_Part]) -> tuple[dict[str, Tensor], Tensor]:
    """Values of the parts by name, and their weighted sum (the values of the only one, with reduction none)."""
    hidden, vocabulary = head.hidden, head.weight.shape[0]
    dtype = torch.float64 if hidden.dtype == torch.float64 else torch.float32
    batches = [part.loss.make_batch(part.labels, vocabulary, part.context) for part in parts]
    by_label = any(path(part.loss) == "transport" for part in parts)
    index, labels, places = rows_of(batches, by_label)
    scalar = parts[0].reduction != "none"
    shape = (len(labels), vocabulary, head.weight.shape[1], head.product)
    at_once = head.chunk_tokens or cosines_at_once(vocabulary, head.product)
    at_once = max(1, min(at_once, len(labels) * 2 // 3))  # never a row for each token
    terms: list[Term] = []
    for part, batch, place in zip(parts, batches, places, strict=True):
        upstream = _upstream(part, batch, dtype) if scalar and part.weight else None
        terms.append(term_of(part.loss, batch, place, dtype, upstream, labels, head.product, at_once))

    def value(part: _Part, term: Term) -> Tensor:
        return part.loss._reduce(term.values, term.batch, part.reduction, part.normalizer)

    def outcome() -> Tensor:
        if not scalar:
            return value(parts[0], terms[0])
        weighted = [part.weight * value(part, term) for part, term in zip(parts, terms, strict=True) if part.weight]
        return torch.stack(weighted).sum(0) if weighted else hidden.new_zeros((), dtype=dtype)

    rows = hidden.reshape(-1, hidden.shape[-1])
    rows = rows if index is None else rows.index_select(0, index)
    inputs: list[Tensor | None] = [rows.to(head.product), head.weight]
    for low in head.low_rank:
        inputs += [low.inputs(rows).to(head.product), low.up]

    def planned(trained: bool, only_hidden: bool) -> Plan:
        gate_only = all(term.gate_only for term in terms)
        return plan(
            *shape,
            trained=trained,
            only_hidden=only_hidden,
            gate_only=gate_only and scalar,
            chunk_tokens=head.chunk_tokens,
            memory_bytes=head.memory_bytes,
        )

    sparing = head.memory_bytes is not None
    job = Job(terms, labels, head.product, planned, outcome, sparing, torch.is_grad_enabled(), scalar)
    total = FusedHead.apply(job, *inputs, head.bias)
    if not scalar:
        return {}, total
    return {part.name: value(part, term) for part, term in zip(parts, terms, strict=True)}, total


def _upstream(part: _Part, batch: Batch, dtype: torch.dtype) -> Tensor:
    """d total / d value of each token, (n,), or of the one value of a batch loss."""
    with torch.enable_grad():
        shape = () if isinstance(part.loss, BatchLoss) else (batch.n,)
        values = batch.labels.new_zeros(shape, dtype=dtype).requires_grad_()
        total = part.weight * part.loss._reduce(values, batch, part.reduction, part.normalizer)
        return torch.autograd.grad(total, values)[0]


def _sequence(low_rank: LowRank | Sequence[LowRank]) -> tuple[LowRank, ...]:
    return (low_rank,) if isinstance(low_rank, LowRank) else tuple(low_rank)


def _kind(value: Any) -> str:
    return f"{tuple(value.shape)} {value.dtype}" if isinstance(value, Tensor) else type(value).__name__
