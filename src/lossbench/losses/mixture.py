"""Weighted sums of losses, each term with its own labels and a weight that may change over the training."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from .base import Loss
from .context import check_names
from .errors import BadInput, BadParameter, nearest
from .parameters import choice, integer, number
from .registry import create

SCOPES = ("answer", "sequence")
SCHEDULES = ("linear", "cosine", "step")


@dataclass(frozen=True)
class Weight:
    """Weight of a term at each optimizer step: constant, or from `start` to `end` in `steps` steps."""

    start: float
    end: float
    steps: int = 0
    schedule: str = "constant"

    @classmethod
    def parse(cls, value: object) -> Weight:
        """A number, or a mapping with the keys schedule (linear, cosine, step), start, end, steps."""
        if not isinstance(value, Mapping):
            constant = number("weight", value)
            return cls(constant, constant)
        keys = ("schedule", "start", "end", "steps")
        for key in value:
            if key not in keys:
                raise BadParameter(f"a scheduled weight has no key {key!r}.{nearest(str(key), keys)}")
        missing = [key for key in keys if key not in value]
        if missing:
            raise BadParameter(f"a scheduled weight needs {', '.join(keys)}; {' and '.join(missing)} is missing.")
        return cls(
            start=number("weight.start", value["start"]),
            end=number("weight.end", value["end"]),
            steps=integer("weight.steps", value["steps"], at_least=1),
            schedule=choice("weight.schedule", value["schedule"], SCHEDULES),
        )

    def at(self, step: int) -> float:
        """Weight at an optimizer step counted from 0; from step `steps` on it is `end`."""
        if self.schedule == "constant" or step >= self.steps:
            return self.end
        done = max(step, 0) / self.steps
        fraction = {"linear": done, "cosine": 0.5 - 0.5 * math.cos(math.pi * done), "step": 0.0}[self.schedule]
        return self.start + (self.end - self.start) * fraction

    @property
    def largest(self) -> float:
        return max(abs(self.start), abs(self.end))


@dataclass(frozen=True)
class Term:
    """One term of a mixture beside its loss."""

    weight: Weight
    scope: str


class Mixture(nn.Module):
    """Weighted sum of losses; every term has its own weight and its own labels (scope).

        mixture(logits, labels, normalizer=None, step=0, **context) -> scalar

    `labels` is one tensor for all terms or {"answer": ..., "sequence": ...}; `normalizer` likewise a number or one a
    scope. To log every term without computing twice, use `terms` and `total`:

        terms = mixture.terms(logits, labels, normalizer=..., **context)    # name -> value, unweighted, with graph
        loss = mixture.total(terms, step=step)
    """

    def __init__(self, losses: Mapping[str, nn.Module], terms: Mapping[str, Term]) -> None:
        super().__init__()
        if not losses:
            raise BadParameter("a mixture needs at least one term, e.g. {'cross_entropy': 1.0}.")
        self.losses = nn.ModuleDict(losses)
        self.settings = dict(terms)
        if all(term.weight.largest == 0 for term in terms.values()):
            raise BadParameter(f"all weights of the mixture {list(terms)} are 0; give one term a weight.")

    @property
    def needs(self) -> tuple[str, ...]:
        """Context that some term cannot do without."""
        return tuple(sorted({name for loss in self.losses.values() for name in getattr(loss, "needs", ())}))

    @property
    def optional(self) -> tuple[str, ...]:
        """Context that some term can use."""
        names = {name for loss in self.losses.values() for name in getattr(loss, "optional", ())}
        return tuple(sorted(names - set(self.needs)))

    @property
    def scopes(self) -> tuple[str, ...]:
        """Scopes that the terms ask labels for."""
        return tuple(sorted({term.scope for term in self.settings.values()}))

    def weight(self, name: str, step: int = 0) -> float:
        """Weight of a term at an optimizer step."""
        return self.settings[name].weight.at(step)

    def bind(self, **context: Any) -> Mixture:
        """Bind vocabulary context in every term that uses it; returns the mixture itself."""
        check_names(context, (*self.needs, *self.optional), "bind of the mixture")
        for loss in self.losses.values():
            used = {k: v for k, v in context.items() if k in _uses(loss)}
            if used:
                loss.bind(**used)  # type: ignore[operator]  # a module of one's own that names context has bind
        return self

    def terms(
        self,
        logits: Tensor,
        labels: Tensor | Mapping[str, Tensor],
        *,
        normalizer: float | Tensor | Mapping[str, Any] | None = None,
        reduction: str = "mean",
        **context: Any,
    ) -> dict[str, Tensor]:
        """Unweighted value of every term by name, attached to the graph."""
        check_names(context, (*self.needs, *self.optional), "the mixture")
        values = {}
        for name, loss in self.losses.items():
            scope = self.settings[name].scope
            values[name] = loss(
                logits,
                _of_scope(labels, scope, "labels"),
                reduction=reduction,
                normalizer=_of_scope(normalizer, scope, "normalizer"),
                **context,
            )
        return values

    def total(self, terms: Mapping[str, Tensor], step: int = 0) -> Tensor:
        """Weighted sum of what `terms` returned; a term of weight 0 cannot spoil it, even with a NaN."""
        weighted = [w * value for name, value in terms.items() if (w := self.weight(name, step)) != 0]
        if not weighted:
            first = next(iter(terms.values()))
            return torch.where(torch.zeros_like(first, dtype=torch.bool), first, 0.0)
        return torch.stack(weighted).sum(0)

    def forward(
        self, logits: Tensor, labels: Tensor | Mapping[str, Tensor], *, step: int = 0, **keywords: Any
    ) -> Tensor:
        """`total` of `terms` at an optimizer step; keywords as in `terms`."""
        return self.total(self.terms(logits, labels, **keywords), step)

    def warnings(self) -> list[str]:
        """Sentences about what this mixture will not do as expected; print them before training."""
        found = []
        has_ce = any(loss.name == "cross_entropy" and self.settings[n].weight.largest for n, loss in self._registered())
        for name, loss in self._registered():
            if not self.settings[name].weight.largest:
                continue
            if loss.auxiliary and not has_ce:
                found.append(f"{name} has no cross_entropy beside it, but {loss.auxiliary}; add a cross_entropy term.")
            found.extend(f"{name}: {sentence}" for sentence in loss.warnings())
        return found

    def _registered(self) -> list[tuple[str, Loss]]:
        return [(name, loss) for name, loss in self.losses.items() if isinstance(loss, Loss)]

    def extra_repr(self) -> str:
        return ", ".join(f"{name}: {term.weight.at(0):g} on {term.scope}" for name, term in self.settings.items())


def mixture(terms: Mapping[str, Any]) -> Mixture:
    """A mixture from {name: weight} or {name: {weight, scope, ...parameters of the loss}}.

    A term is the registered loss of its name, unless it says `loss`: another registered name (so that one loss can
    stand twice) or a module of your own. `weight` is 1 and `scope` is answer where they are not given.

        mixture({"cross_entropy": 0.6, "focal": 0.4})
        mixture({"cross_entropy": {"weight": 0.6, "scope": "sequence"}, "focal": {"weight": 0.4, "gamma": 2.0}})
    """
    if not isinstance(terms, Mapping):
        raise BadParameter(f"a mixture is a mapping of names to weights or settings, got {type(terms).__name__}.")
    losses: dict[str, nn.Module] = {}
    settings: dict[str, Term] = {}
    for name, spec in terms.items():
        spec = dict(spec) if isinstance(spec, Mapping) and "schedule" not in spec else {"weight": spec}
        try:
            weight = Weight.parse(spec.pop("weight", 1.0))
            scope = choice("scope", spec.pop("scope", "answer"), SCOPES)
        except BadParameter as error:
            raise BadParameter(f"term {name!r}: {error}") from None
        loss = spec.pop("loss", name)
        if isinstance(loss, nn.Module):
            if spec:
                raise BadParameter(f"term {name!r} has the module {type(loss).__name__} and also parameters {spec}.")
            losses[name] = loss
        else:
            losses[name] = create(loss, **spec)
        settings[name] = Term(weight, scope)
    return Mixture(losses, settings)


def _uses(loss: nn.Module) -> tuple[str, ...]:
    return (*getattr(loss, "needs", ()), *getattr(loss, "optional", ()))


def _of_scope(value: Any, scope: str, what: str) -> Any:
    if not isinstance(value, Mapping):
        return value
    if scope not in value:
        raise BadInput(f"a term of the mixture has the scope {scope!r} but {what} has only {sorted(value)}.")
    return value[scope]
