"""The families of losses. A loss is described by the least that it needs to see; that decides how it can be fused.

`Loss` does everything that does not depend on the formula: it checks the input, selects the valid rows before any
arithmetic, computes in float32 (float64 stays), reduces. A subclass of one of the families is a formula:

* `TargetLoss`      value(log_p, batch), log p_t of each token;
* `StatisticsLoss`  value(statistics, batch), named sums over each row;
* `RowLoss`         value(rows, batch), each row of logits;
* `BatchLoss`       value(columns, batch), the present classes' columns of all tokens, one scalar;
* `MassLoss`        of_masses(masses, batch), sums over these columns, one scalar.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from .batch import Batch
from .context import CONTEXT, as_tensor, check_names, check_shapes
from .errors import BadInput, MissingContext
from .inputs import IGNORE_INDEX, check_inputs
from .numerics import pick, stop_gradient, target_log_prob, with_gate

STATISTICS = ("lse", "z_t", "sum_z", "sum_z2", "sum_p2", "sum_pz")


class Loss(nn.Module):
    """A training loss of a causal language model.

    Call it with logits (..., V) and labels (...), already aligned (no shift inside), -100 = ignored:

        loss(logits, labels, reduction="mean" | "sum" | "none", normalizer=None, **context)

    `mean` divides by the number n of valid tokens, or by `normalizer` if one is given (the number of valid tokens of
    the whole optimizer step, so that gradient accumulation is exact for local losses). `none` has the labels' shape and
    0 at ignored positions. Losses whose paper averages over something else than tokens rescale their per-token values
    so that `mean` is the paper's value, hence `mean` = `sum` / n for every loss.
    """

    name: ClassVar[str] = ""
    kind: ClassVar[str] = "Loss"
    paper: ClassVar[str] = ""
    scope: str = "local"  # local, local+stats, sequence, global
    needs: tuple[str, ...] = ()  # context that it cannot do without
    optional: tuple[str, ...] = ()  # context that it can use
    shift_invariant: bool = True  # adding a constant to a row of logits changes nothing
    bounds: tuple[float, float] = (-math.inf, math.inf)  # range of the mean
    auxiliary: str = ""  # why it cannot be the only term of an objective, if so
    cost: ClassVar[str] = ""

    def forward(
        self,
        logits: Tensor,
        labels: Tensor,
        *,
        reduction: str = "mean",
        normalizer: float | Tensor | None = None,
        **context: Any,
    ) -> Tensor:
        """Value of the loss, float32 (float64 for float64 logits); shapes and rules in the class docstring."""
        check_inputs(logits, labels, reduction, normalizer)
        with torch.autocast(logits.device.type, enabled=False):
            batch = self.make_batch(labels, logits.shape[-1], context)
            rows = logits.reshape(-1, logits.shape[-1])
            if batch.n < rows.shape[0]:
                rows = rows.index_select(0, batch.index)
            rows = rows if rows.dtype == torch.float64 else rows.float()
            # no valid token: an empty sum, 0 and attached to the graph
            values = self.per_token(rows, batch) if batch.n else rows.sum(1)
            return self._reduce(values, batch, reduction, normalizer)

    def per_token(self, rows: Tensor, batch: Batch) -> Tensor:
        """(n, V) valid rows -> (n,) values (a scalar in BatchLoss)."""
        raise NotImplementedError(f"{type(self).__name__} defines neither value() nor per_token().")

    def make_batch(self, labels: Tensor, vocabulary: int, context: Mapping[str, Any]) -> Batch:
        """Valid tokens and the context of this call, bound context included; raises if something needed is missing."""
        check_names(context, (*self.needs, *self.optional), f"loss {self.name or type(self).__name__}")
        flat = labels.reshape(-1).to(torch.int64)
        index = (flat != IGNORE_INDEX).nonzero().squeeze(1)
        valid = flat[index]
        if valid.numel():
            low, high = (int(v) for v in valid.aminmax())
            if low < 0 or high >= vocabulary:
                raise BadInput(
                    f"label {low if low < 0 else high} is outside the vocabulary of {vocabulary} logits; "
                    f"labels are token ids in [0, {vocabulary}) or {IGNORE_INDEX} (ignored)."
                )
        used = self._use(context, labels, index, vocabulary)
        ids = used.pop("sequence_ids", None)
        return Batch(valid, index, labels.shape, vocabulary, used, None if ids is None else ids.reshape(-1))

    def _use(self, context: Mapping[str, Any], labels: Tensor, index: Tensor, vocabulary: int) -> dict[str, Tensor]:
        """The context that this loss uses, checked: valid tokens only, prepared, and what was bound where none came."""
        names = (*self.needs, *self.optional)
        used = {
            name: as_tensor(name, value, labels.device)
            for name, value in context.items()
            if value is not None and name in (*names, "sequence_ids")
        }
        check_shapes(used, labels.shape, vocabulary)
        for name, value in used.items():
            if name not in CONTEXT or CONTEXT[name].per == "vocabulary":
                used[name] = self.prepare(name, value.detach())
            elif name not in ("tokens", "sequence_ids"):  # these two describe all positions
                used[name] = value.reshape(labels.numel(), *value.shape[labels.dim() :]).index_select(0, index)
        for name in names:
            if name not in used and (bound := getattr(self, f"bound_{name}", None)) is not None:
                check_shapes({name: bound}, labels.shape, vocabulary)
                if bound.device != labels.device:
                    raise BadInput(
                        f"bound context {name} is on {bound.device} but the labels are on {labels.device}; "
                        f"move the loss with loss.to({str(labels.device)!r})."
                    )
                used[name] = bound
        self._require(used)
        return used

    def bind(self, **context: Any) -> Loss:
        """Fix vocabulary context once before training, so that calls need none of it; returns the loss itself."""
        check_names(context, (*self.needs, *self.optional), f"bind of loss {self.name or type(self).__name__}")
        for name, value in context.items():
            if name in CONTEXT and CONTEXT[name].per == "token":
                raise BadInput(f"context {name} belongs to the tokens of a batch; pass it with each call, not to bind.")
            if name in self.needs or name in self.optional:
                prepared = self.prepare(name, as_tensor(name, value).detach())
                self.register_buffer(f"bound_{name}", prepared, persistent=False)
        return self

    def prepare(self, name: str, value: Tensor) -> Tensor:
        """Turn vocabulary context into what `value` works with (same first dimension); done once when it is bound."""
        return value

    def _require(self, present: Mapping[str, Any]) -> None:
        missing = [name for name in self.needs if name not in present]
        if missing:
            what = " and ".join(f"{m} {CONTEXT[m].shape}: {CONTEXT[m].meaning}" if m in CONTEXT else m for m in missing)
            bindable = all(CONTEXT[m].per == "vocabulary" for m in missing if m in CONTEXT)
            how = "bind it once with loss.bind(...) or pass it" if bindable else "pass it"
            raise MissingContext(f"loss {self.name or type(self).__name__} needs {what}; {how} as keyword of the call.")

    def _reduce(self, values: Tensor, batch: Batch, reduction: str, normalizer: float | Tensor | None) -> Tensor:
        if reduction == "none":
            full = values.new_zeros(batch.shape.numel()).index_copy(0, batch.index, values)
            return full.reshape(batch.shape)
        total = values.sum()
        if reduction == "sum":
            return total
        return total / (max(batch.n, 1) if normalizer is None else normalizer)

    def warnings(self) -> list[str]:
        """Sentences that save a user a week; empty for most losses. `auxiliary` is handled by mixtures."""
        return []

    def extra_repr(self) -> str:
        names = inspect.signature(type(self).__init__).parameters
        return ", ".join(f"{name}={getattr(self, name)!r}" for name in names if hasattr(self, name))


class TargetLoss(Loss):
    """A function of log p_t of each token; its gradient is gate * (p - onehot), cross-entropy's times one scalar.

    Override `value`, and `gate` where autograd of `value` gives NaN or loses digits.
    """

    kind = "TargetLoss"
    cost = "that of cross-entropy"

    def per_token(self, rows: Tensor, batch: Batch) -> Tensor:
        return self.of_log_p(target_log_prob(rows, batch.labels), batch)

    def of_log_p(self, log_p: Tensor, batch: Batch) -> Tensor:
        """(n,) differentiable values from (n,) log p_t: weight * value, with the closed-form gate if there is one."""
        gate = self.gate(log_p.detach(), batch)
        value = self.value(log_p if gate is None else log_p.detach(), batch)
        value = value if gate is None else with_gate(log_p, value, gate)
        weight = self.weight(stop_gradient(log_p), batch)
        return value if weight is None else weight.to(value.dtype) * value

    def value(self, log_p: Tensor, batch: Batch) -> Tensor:
        """(n,) log p_t -> (n,) loss of each token."""
        raise NotImplementedError

    def gate(self, log_p: Tensor, batch: Batch) -> Tensor | None:
        """(n,) -d value / d log p_t in closed form, or None to let autograd do it."""
        return None

    def weight(self, log_p: Tensor, batch: Batch) -> Tensor | None:
        """(n,) constant weight of each token (masks, class weights), or None for 1."""
        return None


@dataclass
class Statistics:
    """Sums over each row, all (n,), differentiable. `log_p` is always there; the rest as the class declares.

    For a shift-invariant loss the rows are shifted by their maximum first, so that differences such as the entropy
    lse - sum_pz keep their digits; otherwise they are those of the logits as they came.
    """

    log_p: Tensor  # log p_t = z_t - lse
    lse: Tensor  # log sum_j exp z_j
    z_t: Tensor
    sum_z: Tensor
    sum_z2: Tensor
    sum_p2: Tensor  # sum_j p_j^2
    sum_pz: Tensor  # sum_j p_j z_j

    @property
    def entropy(self) -> Tensor:
        """H = lse - sum_pz in nats; declare lse and sum_pz."""
        return self.lse - self.sum_pz


class StatisticsLoss(Loss):
    """A function of a few sums over each row of logits, named in `statistics`."""

    kind = "RowLoss"
    cost = "that of cross-entropy and one pass over the logits for each further sum"
    statistics: ClassVar[tuple[str, ...]] = ()

    def per_token(self, rows: Tensor, batch: Batch) -> Tensor:
        return self.value(self.measure(rows, batch.labels), batch)

    def measure(self, rows: Tensor, labels: Tensor) -> Statistics:
        """The declared statistics of rows (n, V)."""
        unknown = set(self.statistics) - set(STATISTICS)
        if unknown:
            raise BadInput(f"loss {self.name} declares unknown statistics {sorted(unknown)}; known: {STATISTICS}.")
        if self.shift_invariant:
            rows = rows - rows.detach().amax(1, keepdim=True)
        log_p = target_log_prob(rows, labels)
        absent = log_p.detach()
        p = rows.softmax(1) if {"sum_p2", "sum_pz"} & set(self.statistics) else rows
        compute = {
            "lse": lambda: rows.logsumexp(1),
            "z_t": lambda: pick(rows, labels),
            "sum_z": lambda: rows.sum(1),
            "sum_z2": lambda: rows.square().sum(1),
            "sum_p2": lambda: p.square().sum(1),
            "sum_pz": lambda: (p * rows).sum(1),
        }
        missing = torch.full_like(absent, math.nan)  # a formula that reads what it did not declare gives NaN at once
        return Statistics(log_p, **{k: f() if k in self.statistics else missing for k, f in compute.items()})

    def value(self, statistics: Statistics, batch: Batch) -> Tensor:
        """Statistics of n rows -> (n,) loss of each token."""
        raise NotImplementedError


class RowLoss(Loss):
    """A function of whole rows of logits."""

    kind = "RowLoss"
    cost = "that of cross-entropy and a few more passes over the logits"

    def per_token(self, rows: Tensor, batch: Batch) -> Tensor:
        return self.value(rows, batch)

    def value(self, rows: Tensor, batch: Batch) -> Tensor:
        """(n, V) logits -> (n,) loss of each token."""
        raise NotImplementedError


@dataclass
class Columns:
    """log p of all n tokens in the columns of the K classes that occur among their labels."""

    log_p: Tensor  # (n, K)
    classes: Tensor  # (K,) token ids, ascending
    label: Tensor  # (n,) column of each token's label
    count: Tensor  # (K,) tokens of each class, in the dtype of log_p
    log_p_t: Tensor  # (n,) log p of each token's label

    @classmethod
    def of(cls, rows: Tensor, labels: Tensor) -> Columns:
        """Columns of the classes that occur among labels (n,), from logits (n, V)."""
        classes, label, count = torch.unique(labels, return_inverse=True, return_counts=True)
        log_p = rows.log_softmax(1).index_select(1, classes)
        return cls(log_p, classes, label, count.to(rows.dtype), target_log_prob(rows, labels))


class BatchLoss(Loss):
    """One number for all valid tokens together: `sum` is n times it, and there is no value of a single token."""

    kind = "BatchLoss"
    scope = "global"
    cost = "that of cross-entropy and the n x K columns of the K classes that occur"

    def per_token(self, rows: Tensor, batch: Batch) -> Tensor:
        return self.value(Columns.of(rows, batch.labels), batch)

    def value(self, columns: Columns, batch: Batch) -> Tensor:
        """Present columns of all tokens -> scalar."""
        raise NotImplementedError

    def _reduce(self, values: Tensor, batch: Batch, reduction: str, normalizer: float | Tensor | None) -> Tensor:
        if reduction == "none":
            raise BadInput(
                f"loss {self.name or type(self).__name__} is one number for all tokens of a batch and has no values of "
                "single tokens; use reduction 'mean' or 'sum'."
            )
        value = values.sum()
        if reduction == "mean" and normalizer is None:
            return value
        total = value * batch.n
        return total if normalizer is None else total / normalizer


@dataclass
class Masses:
    """Probability that n tokens give to the K classes that occur among their labels, summed by class."""

    others: Tensor  # (K,) sum of p_ic over the tokens that are not of class c
    absent: Tensor  # () sum of p over all tokens and the classes that do not occur
    label: Tensor  # (n,) number of each token's class, 0 to K - 1
    count: Tensor  # (K,) tokens of each class, in the dtype of the rest
    log_p_t: Tensor  # (n,) log p of each token's label

    @property
    def own(self) -> Tensor:
        """(K,) sum of p_ic over the tokens of class c."""
        return torch.zeros_like(self.count).index_add(0, self.label, self.log_p_t.exp())


class MassLoss(BatchLoss):
    """A `BatchLoss` that is a function of sums over each class; its memory does not grow with n times K."""

    cost = "that of cross-entropy and one more pass over the logits"

    def value(self, columns: Columns, batch: Batch) -> Tensor:
        p = columns.log_p.exp()
        others = p.scatter(1, columns.label[:, None], 0.0).sum(0)
        absent = batch.n - p.sum()
        return self.of_masses(Masses(others, absent, columns.label, columns.count, columns.log_p_t), batch)

    def of_masses(self, masses: Masses, batch: Batch) -> Tensor:
        """Sums of n tokens -> scalar."""
        raise NotImplementedError
