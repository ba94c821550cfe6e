"""A training of a few thousand parameters that can be stopped at any step, in this process."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn

from lossbench import app
from lossbench.data.tokens import TokenizedExample
from lossbench.models.load import add_peft
from lossbench.progress import ProgressDisplay
from lossbench.training.context import Context
from lossbench.training.fit import Fitted, fit
from lossbench.training.interrupt import Interrupted, Interrupts
from lossbench.training.objective import create_objective
from lossbench.training.ranks import Ranks
from lossbench.training.selection import Validation
from tests.models_at_hand import byte_tokenizer, tiny_llama

EXAMPLES = [
    TokenizedExample(f"ex-{n}", [(7 * n + 3 * t) % 250 for t in range(5 + n % 6)], target_start=2 + n % 3)
    for n in range(23)
]
STEPS = 6
SETTINGS = (
    f"trainer.max_steps={STEPS}",
    "trainer.batch_size=2",
    "trainer.validate_every=2",
    "trainer.log_every=1",
    "trainer.checkpoint_every=2",
    "optimizer.lr=1e-2",
    "dataset.group_by_length=false",
)


composed = cache(app.compose)


class KilledError(BaseException):
    """Ends a training where it is, as SIGKILL would."""


@dataclass
class Lines:
    """A journal in memory whose lines go through JSON, as those of a record do."""

    folder: Path
    kept: list[str] = field(default_factory=list)

    @property
    def lines(self) -> int:
        return len(self.kept)

    def log(self, step: int, values: Mapping[str, float]) -> None:
        comparable = {name: value for name, value in values.items() if not name.startswith("perf/")}
        self.kept.append(json.dumps({"step": step, **comparable}))

    def continue_from(self, lines: int | None) -> None:
        del self.kept[lines or 0 :]


class Bell(ProgressDisplay):
    """Calls `ring` after every optimizer step, when training is told to show it."""

    def __init__(self, ring: Callable[[int], None]) -> None:
        super().__init__("test", enabled=False)
        self._ring = ring

    def update(self, done: int, note: str = "") -> None:
        self._ring(done)


@dataclass(frozen=True)
class Outcome:
    weights: dict[str, torch.Tensor]
    lines: list[str]
    fitted: Fitted


def train(
    folder: Path,
    *overrides: str,
    stop_after: int | None = None,
    kill_after: int | None = None,
    journal: Lines | None = None,
    interrupts: Interrupts | None = None,
    ranks: Ranks | None = None,
    dropout: float = 0.2,
) -> Outcome:
    """Train from what is in `folder`; a signal comes in step `stop_after`, or the process dies after `kill_after`."""
    config = composed(*SETTINGS, *overrides)
    torch.manual_seed(config.seed)
    tuned = add_peft(tiny_llama(dropout=dropout), config.peft)
    objective = create_objective(config.loss)
    context = Context(objective, tuned, byte_tokenizer(), EXAMPLES)
    interrupts = interrupts or Interrupts()
    task: Any = SimpleNamespace(metrics=("perplexity",))
    validation = Validation(task, [], EXAMPLES[:5], byte_tokenizer(), config)
    journal = journal or Lines(folder)

    def ring(done: int) -> None:
        if done == stop_after:
            interrupts.received = signal.SIGTERM
        if done == kill_after:
            raise KilledError

    fitted = fit(
        tuned, objective, context, EXAMPLES, validation, config, journal, Bell(ring), interrupts, ranks or Ranks()
    )
    return Outcome(weights(tuned, context), list(journal.kept), fitted)


def weights(model: nn.Module, context: nn.Module) -> dict[str, torch.Tensor]:
    return {
        name: weight.detach().clone()
        for module in (model, context)
        for name, weight in module.named_parameters()
        if weight.requires_grad
    }


def interrupted(folder: Path, *overrides: str, after: int, kill: bool = False) -> Outcome:
    """A training that is stopped once and started again."""
    journal = Lines(folder)
    try:
        train(folder, *overrides, journal=journal, **{"kill_after" if kill else "stop_after": after})
    except (Interrupted, KilledError):
        return train(folder, *overrides, journal=journal)
    raise AssertionError("it was not stopped")


def assert_same(ours: Outcome, theirs: Outcome) -> None:
    """Bit for bit the same weights, line for line the same log."""
    assert ours.lines == theirs.lines
    assert ours.weights.keys() == theirs.weights.keys()
    for name, weight in ours.weights.items():
        assert torch.equal(weight, theirs.weights[name]), name
    assert (ours.fitted.best.step, ours.fitted.best.value) == (theirs.fitted.best.step, theirs.fitted.best.value)
    assert (ours.fitted.done.tokens, ours.fitted.done.step) == (theirs.fitted.done.tokens, theirs.fitted.done.step)
