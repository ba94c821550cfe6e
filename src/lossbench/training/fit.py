"""Fine-tune for a number of optimizer steps, and keep the weights with the best validation metric.

Training can be stopped between any two optimizer steps and goes on as if it had not been (docs/training.md).
"""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lightning as L
import torch
from lightning.pytorch.plugins.environments import LightningEnvironment, TorchElasticEnvironment
from torch import nn
from torch.utils.data import DataLoader
from transformers import PreTrainedModel

from lossbench.config import RunConfig
from lossbench.data.batches import StepBatches, StepDataset
from lossbench.data.step_plan import StepPlan
from lossbench.data.tokens import TokenizedExample
from lossbench.losses import Mixture
from lossbench.progress import ProgressDisplay
from lossbench.training.checkpoint import BestCheckpoint, Checkpoints
from lossbench.training.context import Context
from lossbench.training.interrupt import Interrupted, Interrupts, ignore_signals
from lossbench.training.journal import Journal
from lossbench.training.module import ALONE, FineTuning
from lossbench.training.ranks import Ranks
from lossbench.training.selection import Validation
from lossbench.training.strategy import check_strategy, shards, strategy_of
from lossbench.training.watch import Done, Watch

SMALL_MODEL = 10_000_000  # parameters; below it one CPU thread is several times faster than two


@dataclass(frozen=True)
class Fitted:
    """What training came to."""

    done: Done
    best: BestCheckpoint
    model_is_whole: bool  # false: its weights are shared among ranks; load it anew, and the best weights into it
    gpus: int = 0  # that trained at once

    @property
    def steps(self) -> int:
        return self.done.step

    def metrics(self) -> dict[str, float]:
        done = self.done
        costs = {"perf/gpu_hours": self.gpus * done.train_seconds / 3600} if self.gpus else {}
        return {
            **done.at_best,
            **costs,
            "time/train_s": done.train_seconds,
            "perf/tokens_per_s": done.tokens / done.train_seconds if done.train_seconds else 0.0,
            "perf/peak_memory_mb": done.peak_memory,
            "data/n_steps": float(done.step),
        }


def choose_threads(model: PreTrainedModel, asked: int | None) -> None:
    """Set torch's CPU threads: as asked, else one for a small model."""
    small = sum(weight.numel() for weight in model.parameters()) < SMALL_MODEL
    if asked is not None or small:
        torch.set_num_threads(asked or 1)


def step_plan(train: Sequence[TokenizedExample], config: RunConfig, world_size: int = 1) -> StepPlan:
    """The order of training that a configuration asks for."""
    return StepPlan(
        tuple(len(example.input_ids) for example in train),
        config.trainer.batch_size,
        config.trainer.accumulate,
        config.seed,
        config.dataset.group_by_length,
        config.trainer.tokens_per_step,
        world_size,
    )


def number_of_steps(config: RunConfig, plan: StepPlan) -> int:
    """`trainer.max_steps`, else as many as `dataset.epochs` take, at least one."""
    return config.trainer.max_steps or plan.steps_in(config.dataset.epochs)


def fit(
    model: PreTrainedModel,
    objective: Mixture,
    context: Context,
    train: Sequence[TokenizedExample],
    validation: Validation,
    config: RunConfig,
    journal: Journal,
    progress: ProgressDisplay,
    interrupts: Interrupts | None = None,
    ranks: Ranks = ALONE,
) -> Fitted:
    """Train `model` in place from where an earlier process stopped, and leave it, on its device, with the best weights.

    Every rank calls this; the others than the first are left with weights that do not matter.

    Raises:
        Interrupted: a signal came; everything is saved, and the same call goes on.
        CheckpointError: a checkpoint could not be written; the one before it is still there.
        DivergedError: the loss or a gradient is not finite.
    """
    check_strategy(config, objective)
    interrupts = interrupts or Interrupts()
    plan = step_plan(train, config, ranks.world_size)
    steps = number_of_steps(config, plan)
    wanted = validation.chosen_by
    folder = journal.folder / "checkpoints"
    best = BestCheckpoint(folder, wanted.name, wanted.higher_is_better, writes=ranks.is_first)
    checkpoints = Checkpoints(folder)
    state = _where_it_stopped(checkpoints, best, journal, ranks)
    watch = Watch(
        validation, config.trainer, best, checkpoints, interrupts, ranks, journal, progress, state,
        is_sharded=shards(config, ranks),
    )  # fmt: skip
    module = FineTuning(model, objective, context, config, steps, watch.log, ranks)
    trainer = _trainer(config, ranks, steps, journal.folder, watch)
    if not watch.done.is_over(steps):
        progress.phase("training", steps)
        first = min(watch.done.step, steps - 1)  # the last step again where only its validation is missing: skipped
        data = StepDataset(train, plan, steps, first=first, rank=ranks.rank)
        with interrupts.deferred():
            _train(trainer, module, _loader(data, config.trainer.loader_workers), interrupts)
        if watch.signal:
            raise Interrupted(watch.signal, resumable=watch.done.step > 0)
    whole = not watch.is_sharded
    if ranks.is_first and whole:
        best.restore(module)
        nn.Module.to(model, trainer.strategy.root_device)  # Lightning puts it back on the CPU
    on_gpus = trainer.strategy.root_device.type == "cuda"
    return Fitted(watch.done, best, whole, gpus=trainer.world_size if on_gpus else 0)


def whole_model(model: PreTrainedModel, config: RunConfig, fitted: Fitted) -> PreTrainedModel:
    """The trained model on one device: `model` itself, or, where ranks shared its weights, one that is loaded anew.

    The best weights get their lasting name; nothing is trained after this.
    """
    if not fitted.model_is_whole:
        from lossbench.models.load import add_peft, load

        holder = nn.Module()  # in a checkpoint the names are those of a module that holds the model
        holder.model = add_peft(load(config.model, config.peft)[0], config.peft)
        fitted.best.restore(holder)
        on_gpu = config.trainer.accelerator != "cpu" and torch.cuda.is_available()
        model = holder.model.to("cuda" if on_gpu else "cpu")  # type: ignore[assignment]
    fitted.best.settle()
    return model


def _where_it_stopped(
    checkpoints: Checkpoints, best: BestCheckpoint, journal: Journal, ranks: Ranks
) -> Mapping[str, Any] | None:
    """The state to go on from, or None; the journal is cut to what had been logged then."""
    existed = Checkpoints.exist(checkpoints.folder)
    state, complaints = checkpoints.read(best)
    journal.continue_from(None if state is None else state["lines"])
    if ranks.is_first:
        for sentence in complaints:
            print(f"warning: {sentence}", file=sys.stderr)
        if state is not None:
            print(f"going on after optimizer step {state['done']['step']}", file=sys.stderr)
        elif existed:
            print("warning: no checkpoint can be used; training begins anew.", file=sys.stderr)
    return state


def _loader(data: StepDataset, workers: int) -> DataLoader[StepBatches]:
    return DataLoader(
        data,
        batch_size=None,
        num_workers=workers,
        worker_init_fn=ignore_signals,
        generator=torch.Generator(),  # else it draws a number from the global one
        persistent_workers=False,
    )


def _train(trainer: L.Trainer, module: FineTuning, loader: DataLoader[StepBatches], interrupts: Interrupts) -> None:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*does not have many workers.*")
        warnings.filterwarnings("ignore", message=".*LeafSpec.*")  # Lightning 2.6 on torch 2.13
        warnings.filterwarnings("ignore", message=".*`srun` command is available.*")
        warnings.filterwarnings(
            "ignore", message=".*`broadcast_buffers` is deprecated.*"
        )  # Lightning calls torch's DDP
        warnings.filterwarnings("ignore", message=".*returned a view tensor.*")  # FSDP2; nobody writes to the outputs
        try:
            trainer.fit(module, loader)
        except SystemExit:  # also Lightning's own, when a signal came before our handler was back in place
            interrupts.check()
            raise


def _trainer(config: RunConfig, ranks: Ranks, steps: int, folder: Path, watch: L.Callback) -> L.Trainer:
    # Everything that Lightning would write or guess is done by lossbench: record, checkpoints, progress, SLURM.
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    logging.getLogger("lightning.fabric").setLevel(logging.ERROR)
    return L.Trainer(
        max_steps=steps,
        max_epochs=1,
        accelerator=config.trainer.accelerator,
        devices=config.trainer.devices,
        num_nodes=ranks.world_size // ranks.local_world_size,
        strategy=strategy_of(config, ranks),
        precision=config.trainer.precision,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        use_distributed_sampler=False,
        default_root_dir=str(folder),
        plugins=[TorchElasticEnvironment() if ranks.world_size > 1 else LightningEnvironment()],
        callbacks=[watch],
    )
