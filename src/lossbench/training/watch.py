"""What happens around optimizer steps: validation, the choice of weights, checkpoints, stopping, and what is shown."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import lightning as L
import torch

from lossbench.config import TrainerConfig
from lossbench.data.batches import StepBatches
from lossbench.progress import ProgressDisplay
from lossbench.training.checkpoint import BestCheckpoint, Checkpoints
from lossbench.training.interrupt import Interrupts
from lossbench.training.journal import Journal
from lossbench.training.module import FineTuning
from lossbench.training.ranks import Ranks
from lossbench.training.resume import put_back, state_of
from lossbench.training.selection import Validation
from lossbench.training.strategy import reshard, without_sync


class _AbandonedError(Exception):
    """A signal came during a validation, which is done again after the restart."""


@dataclass
class Done:
    """How far training is; part of every checkpoint."""

    step: int = 0  # optimizer steps
    is_validated: bool = False  # whether the validation that is due at this step has been done
    stale: int = 0  # validations in a row without a better value
    at_best: dict[str, float] = field(default_factory=dict)  # what the best validation measured
    is_stopped_early: bool = False
    tokens: int = 0  # input tokens without padding
    train_seconds: float = 0.0  # without validation and checkpoints
    peak_memory: float = 0.0  # MB, of the device; of the process on a CPU

    def is_over(self, steps: int) -> bool:
        """Whether nothing of a training of `steps` steps is left to do."""
        return self.is_validated and (self.step == steps or self.is_stopped_early)


class Watch(L.Callback):
    """Between two optimizer steps nothing is half done: here training is measured, saved and stopped."""

    def __init__(
        self,
        validation: Validation,
        config: TrainerConfig,
        best: BestCheckpoint,
        checkpoints: Checkpoints,
        interrupts: Interrupts,
        ranks: Ranks,
        journal: Journal,
        progress: ProgressDisplay,
        state: Mapping[str, Any] | None,
        *,
        is_sharded: bool,
    ) -> None:
        self.best, self.done = best, Done(**state["done"]) if state else Done()
        self.signal = 0  # that training was stopped by
        self.is_sharded = is_sharded
        self._state = state
        self._validation, self._config, self._checkpoints = validation, config, checkpoints
        self._interrupts, self._ranks, self._journal, self._progress = interrupts, ranks, journal, progress
        self._since = self._logged_at = time.monotonic()
        self._logged_tokens = self.done.tokens

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Log the values of an optimizer step with speed and memory; for the module."""
        self._note_memory()
        now, tokens = time.monotonic(), self.done.tokens
        speed = (tokens - self._logged_tokens) / max(now - self._logged_at, 1e-9)
        self._logged_at, self._logged_tokens = now, tokens
        performance = {"perf/tokens_per_s": speed, "perf/peak_memory_mb": self.done.peak_memory}
        self._journal.log(step, {**values, **performance})

    def on_train_start(self, trainer: L.Trainer, module: FineTuning) -> None:  # type: ignore[override]
        self._interrupts.install()  # Lightning has put its own handler of SIGTERM in place
        module.without_sync = without_sync(trainer.strategy)
        if self._state is not None:
            put_back(self._state, module, trainer.optimizers[0], self._ranks)
            self._state = None  # as large as the model
        self._validate(trainer, module)
        if self.done.step == module.steps:
            self._save(trainer, module)
        if self._asked_to_stop(module) or self.done.step == module.steps:
            trainer.should_stop = True
        self._since = self._logged_at = time.monotonic()

    def on_train_batch_start(  # type: ignore[override]
        self, trainer: L.Trainer, module: FineTuning, batch: StepBatches, batch_idx: int
    ) -> int | None:
        self.done.tokens += 0 if trainer.should_stop else batch.tokens
        return -1 if trainer.should_stop else None  # a signal came before the first step

    def on_train_batch_end(  # type: ignore[override]
        self, trainer: L.Trainer, module: FineTuning, outputs: Any, batch: StepBatches, batch_idx: int
    ) -> None:
        done, config = self.done, self._config
        done.step = batch.number + 1
        is_last = done.step == module.steps
        done.is_validated = not (is_last or done.step % config.validate_every == 0)
        loss = outputs["values"]["loss"]
        self._progress.update(done.step, f"loss {loss:.3f}  {self.best.criterion} {self.best.value:.3f}")
        asked = self._asked_to_stop(module)
        if not (done.is_validated or asked):
            done.train_seconds += time.monotonic() - self._since
            self._validate(trainer, module)
            self._since = time.monotonic()
            asked = self._asked_to_stop(module)
        is_due = config.checkpoint_every is not None and done.step % config.checkpoint_every == 0
        if asked or is_last or is_due or trainer.should_stop:
            done.train_seconds += time.monotonic() - self._since
            self._save(trainer, module)
            self._since = time.monotonic()
        if asked:
            trainer.should_stop = True

    def _asked_to_stop(self, module: FineTuning) -> bool:
        """Whether a signal has come to any rank; all of them stop after the same step."""
        self.signal = self._ranks.largest(self._interrupts.received or 0, module.device)
        return self.signal != 0

    def _validate(self, trainer: L.Trainer, module: FineTuning) -> None:
        """Measure, unless it has been done at this step, and keep the weights if they are the best."""
        if self.done.is_validated:
            return
        with module.averaged():
            found: dict[str, float] | None = None
            if self._ranks.is_first or self.is_sharded:
                try:
                    found = self._validation.measure(module.model, self._abandon_if_asked)
                except _AbandonedError:
                    found = None
            if self.is_sharded:
                reshard(module.model)
            found = self._ranks.from_first(found)
            if found is None:
                return
            self._journal.log(self.done.step, found)
            is_better = self.best.offer(module, self.done.step, found[self.best.criterion])
        self.done.is_validated = True
        self.done.stale = 0 if is_better else self.done.stale + 1
        if is_better:
            self.done.at_best = found
        if self._config.early_stopping is not None and self.done.stale >= self._config.early_stopping:
            self.done.is_stopped_early = True
            trainer.should_stop = True

    def _abandon_if_asked(self, *_: Any) -> None:
        if self._interrupts.received is not None and not self.is_sharded:  # sharded: all ranks, or none
            raise _AbandonedError

    def _save(self, trainer: L.Trainer, module: FineTuning) -> None:
        self._note_memory()
        state = state_of(module, trainer.optimizers[0], self._ranks)
        if self._ranks.is_first:
            self._checkpoints.write({**state, "done": asdict(self.done), "lines": self._journal.lines}, self.best)
        self._ranks.from_first(None)  # nobody goes on, or ends, before it is on disk

    def _note_memory(self) -> None:
        if torch.cuda.is_available():
            used = torch.cuda.max_memory_allocated() / 1e6
        else:
            unit = 1 if sys.platform == "darwin" else 1024
            used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6
        self.done.peak_memory = max(self.done.peak_memory, used)
