"""Conformance of a loss: the rules that every loss obeys, tried on small random inputs, with a readable report."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from .errors import BadInput
from .registry import create, load
from .rules import RULES, NotApplicable, Subject


@dataclass(frozen=True)
class CheckResult:
    """One rule: `status` is ok, failed or skipped; `why` says what was found, or why it was not tried."""

    name: str
    status: str
    why: str = ""


@dataclass(frozen=True)
class CheckReport:
    """All rules for one loss; `str(report)` is a table."""

    loss: str
    results: tuple[CheckResult, ...]

    @property
    def ok(self) -> bool:
        """No rule failed."""
        return not self.failures

    @property
    def failures(self) -> list[CheckResult]:
        return [r for r in self.results if r.status == "failed"]

    def __str__(self) -> str:
        width = max(len(r.name) for r in self.results)
        lines = [f"{r.name:<{width}}  {r.status:<7}  {r.why}".rstrip() for r in self.results]
        verdict = "passes" if self.ok else f"fails {len(self.failures)} of {len(self.results)} checks"
        return "\n".join([f"{self.loss} {verdict}", *lines])


def check(loss: nn.Module | type[nn.Module] | str) -> CheckReport:
    """Try a loss against the rules: a module, its class, a registered name or `module:attribute`; it is left untouched.

    A loss of your own is any module with `forward(logits, labels, *, reduction, normalizer, **context)`; attributes
    `scope`, `needs`, `optional`, `bounds` and `shift_invariant` are read where it has them.
    """
    target = load(loss) if isinstance(loss, str) and ":" in loss else loss
    module = create(target) if isinstance(target, str) else target() if isinstance(target, type) else target
    if not isinstance(module, nn.Module):
        raise BadInput(f"{loss!r} is {type(module).__name__}, not a torch.nn.Module with forward(logits, labels, ...).")
    subject = Subject(module)
    results = []
    for rule in RULES:
        name = rule.__name__.strip("_").replace("_", " ")
        try:
            with torch.random.fork_rng(devices=[]):
                rule(subject)
            results.append(CheckResult(name, "ok"))
        except NotApplicable as reason:
            results.append(CheckResult(name, "skipped", str(reason)))
        except AssertionError as problem:
            results.append(CheckResult(name, "failed", str(problem)))
        except Exception as error:  # a loss of somebody else may raise anything; the table must still be complete
            results.append(CheckResult(name, "failed", f"{type(error).__name__}: {error}".split("\n")[0]))
    return CheckReport(getattr(module, "name", "") or type(module).__name__, tuple(results))
