"""Fine-tune for a number of optimizer steps, keep the weights with the best validation cross-entropy."""

from __future__ import annotations

import logging
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lightning as L
import torch
from lightning.pytorch.plugins.environments import LightningEnvironment
from torch import nn
from torch.utils.data import DataLoader
from transformers import PreTrainedModel

from lossbench.config import RunConfig
from lossbench.data.batches import StepBatches, StepDataset
from lossbench.data.step_plan import StepPlan
from lossbench.data.tokens import TokenizedExample
from lossbench.evaluation.perplexity import target_nll
from lossbench.losses import Mixture
from lossbench.progress import ProgressDisplay
from lossbench.training.checkpoint import BestCheckpoint
from lossbench.training.context import Context
from lossbench.training.module import FineTuning, Log

STOPPED = 143  # exit code of a process that SIGTERM ended
SMALL_MODEL = 10_000_000  # parameters; below it one CPU thread is several times faster than two


@dataclass(frozen=True)
class Fitted:
    """What training came to."""

    steps: int
    best: BestCheckpoint
    train_seconds: float  # without validation
    tokens: int  # input tokens without padding

    def metrics(self) -> dict[str, float]:
        return {
            "val/nll": self.best.value,
            "time/train_s": self.train_seconds,
            "perf/tokens_per_s": self.tokens / self.train_seconds if self.train_seconds else 0.0,
            "data/n_steps": float(self.steps),
        }


def choose_threads(model: PreTrainedModel, asked: int | None) -> None:
    """Set torch's CPU threads: as asked, else one for a small model."""
    small = sum(weight.numel() for weight in model.parameters()) < SMALL_MODEL
    if asked is not None or small:
        torch.set_num_threads(asked or 1)


def number_of_steps(config: RunConfig, plan: StepPlan) -> int:
    """`trainer.max_steps`, else as many as `dataset.epochs` take, at least one."""
    return config.trainer.max_steps or max(1, round(config.dataset.epochs * plan.steps_per_epoch))


def fit(
    model: PreTrainedModel,
    objective: Mixture,
    context: Context,
    train: Sequence[TokenizedExample],
    validation: Sequence[TokenizedExample],
    config: RunConfig,
    folder: Path,
    log: Log,
    progress: ProgressDisplay,
) -> Fitted:
    """Train `model` in place and leave it, on its device, with the best weights."""
    plan = StepPlan(
        tuple(len(example.input_ids) for example in train),
        config.trainer.batch_size,
        config.trainer.accumulate,
        config.seed,
        config.dataset.group_by_length,
    )
    steps = number_of_steps(config, plan)
    loader = DataLoader(StepDataset(train, plan, last=steps), batch_size=None)
    module = FineTuning(model, objective, context, config, steps, log)
    watch = _Watch(validation, config, BestCheckpoint(folder / "checkpoints"), log, progress)
    trainer = _trainer(config, steps, folder, watch)
    progress.phase("training", steps)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*does not have many workers.*")
        warnings.filterwarnings("ignore", message=".*LeafSpec.*")  # Lightning 2.6 on torch 2.13
        try:
            trainer.fit(module, loader)
        except SystemExit:  # Lightning's quiet answer to a signal, with exit code 0 on SIGTERM
            raise SystemExit(STOPPED) from None
    watch.best.restore(module)
    nn.Module.to(model, trainer.strategy.root_device)  # Lightning puts it back on the CPU
    return Fitted(steps, watch.best, watch.train_seconds, watch.tokens)


def _trainer(config: RunConfig, steps: int, folder: Path, watch: L.Callback) -> L.Trainer:
    # Everything that Lightning would write or guess is done by lossbench: record, checkpoints, progress, SLURM.
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    logging.getLogger("lightning.fabric").setLevel(logging.ERROR)
    return L.Trainer(
        max_steps=steps,
        max_epochs=1,
        accelerator=config.trainer.accelerator,
        devices=1,
        precision=config.trainer.precision,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        use_distributed_sampler=False,
        default_root_dir=str(folder),
        plugins=[LightningEnvironment()],
        callbacks=[watch],
    )


class _Watch(L.Callback):
    """Validates, keeps the best checkpoint, counts tokens and seconds, and shows progress."""

    def __init__(
        self,
        validation: Sequence[TokenizedExample],
        config: RunConfig,
        best: BestCheckpoint,
        log: Log,
        progress: ProgressDisplay,
    ) -> None:
        self.best = best
        self.seen, self.tokens, self.train_seconds = 0, 0, 0.0
        self._validation, self._config, self._log, self._progress = validation, config, log, progress

    def on_train_start(self, trainer: L.Trainer, module: FineTuning) -> None:  # type: ignore[override]
        self._validate(module, step=0)
        self._since = time.monotonic()

    def on_train_batch_end(  # type: ignore[override]
        self, trainer: L.Trainer, module: FineTuning, outputs: Any, batch: StepBatches, batch_idx: int
    ) -> None:
        self.seen = batch_idx + 1
        self.tokens += sum(int(part.attention_mask.sum()) for part in batch.batches)
        values: Mapping[str, float] = outputs["values"]
        self._progress.update(self.seen, f"loss {values['loss']:.3f}  validation {self.best.value:.3f}")
        if self.seen % self._config.trainer.validate_every == 0 or self.seen == module.steps:
            self.train_seconds += time.monotonic() - self._since
            self._validate(module, self.seen)
            self._since = time.monotonic()

    def _validate(self, module: FineTuning, step: int) -> None:
        scores = target_nll(module.model, self._validation, batch_size=self._config.evaluation.batch_size)
        nll = sum(score.nll_sum for score in scores) / sum(score.n_tokens for score in scores)
        self._log(step, {"val/nll": nll})
        self.best.offer(module, step, nll)
