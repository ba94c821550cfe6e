"""The Lightning module: one call of `training_step` is one whole optimizer step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext

import lightning as L
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import PreTrainedModel

from lossbench.config import RunConfig
from lossbench.data.batches import IGNORED, Batch, StepBatches
from lossbench.errors import DivergedError
from lossbench.losses import Mixture, linear_terms
from lossbench.training.checkpoint import trainable
from lossbench.training.context import Context
from lossbench.training.head import choose
from lossbench.training.optimization import adamw, schedule

Log = Callable[[int, Mapping[str, float]], None]


class FineTuning(L.LightningModule):
    """Fine-tunes `model` under `objective`.

    Optimization is manual: the loop over micro-batches is here, so that every micro-batch's sum is divided by the token
    count of the whole step, and accumulation gives the gradient of one large batch.
    """

    def __init__(
        self, model: PreTrainedModel, objective: Mixture, context: Context, config: RunConfig, steps: int, log: Log
    ) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.model = model
        self.objective = objective
        self.steps = steps
        self.context = context
        self.head = choose(model, config.trainer.fused_head)  # None: the losses get whole logits
        self._config = config
        self._log = log
        self.model.train()  # from_pretrained returns eval mode, in which dropout is off

    def configure_optimizers(self) -> torch.optim.Optimizer:
        optimizer = adamw(self, self._config.optimizer)
        self._schedule = schedule(optimizer, self._config.scheduler, self.steps)
        return optimizer

    def training_step(self, step: StepBatches, index: int) -> dict[str, dict[str, float]]:
        optimizer = self.optimizers()
        assert not isinstance(optimizer, list)
        logging = (index + 1) % self._config.trainer.log_every == 0 or index + 1 == self.steps
        values: dict[str, float] = {}
        for batch in step.batches:
            loss, parts = self._losses(batch, step.normalizer, index, logging)
            self.manual_backward(loss)
            for name, part in parts.items():
                values[name] = values.get(name, 0.0) + float(part.detach())
        values["grad_norm"] = self._clipped_norm()
        self._refuse_divergence(values, step, index)
        values["lr"] = float(self._schedule.get_last_lr()[0])
        optimizer.step()
        self._schedule.step()
        optimizer.zero_grad()
        if logging:
            self._log(index + 1, {f"train/{name}": value for name, value in values.items()})
        return {"values": values}

    def _losses(
        self, batch: Batch, normalizer: Mapping[str, int], index: int, logging: bool
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The objective on a micro-batch, to be differentiated, and what is logged of it."""
        with self.head.taken_out() if self.head else nullcontext():
            outputs = self.model(
                input_ids=batch.input_ids,
                attention_mask=batch.attention_mask,
                output_hidden_states=self.context.wants_hidden_states,
            )
        hidden = outputs.hidden_states[-1] if self.context.wants_hidden_states else None
        context = self.context.of(self.model, batch, hidden, index)
        if self.head is None:
            logits = outputs.logits
            terms = self.objective.terms(logits, batch.labels, normalizer=normalizer, **context)
            loss = self.objective.total(terms, step=index)
            nll = answer_cross_entropy(logits.detach(), batch) / normalizer["answer"] if logging else None
        else:
            fused = linear_terms(
                self.head.inputs(outputs),
                self.head.weight,
                batch.labels,
                self.objective,
                self.head.bias,
                low_rank=self.head.low_rank,
                normalizer=normalizer,
                step=index,
                watch={"cross_entropy": "answer"} if logging else {},
                **context,
            )
            loss, terms = fused.total, fused.values
            nll = terms.pop("watch/cross_entropy", None)
        parts = {"loss": loss, **{f"term/{name}": value for name, value in terms.items() if len(terms) > 1}}
        return loss, parts if nll is None else {**parts, "cross_entropy": nll}

    def transfer_batch_to_device(self, batch: StepBatches, device: torch.device, dataloader_idx: int) -> StepBatches:
        return batch.to(device)

    def _clipped_norm(self) -> float:
        """The gradient norm before clipping."""
        most = self._config.trainer.gradient_clip or float("inf")
        return float(nn.utils.clip_grad_norm_([weight for _, weight in trainable(self)], most))

    def _refuse_divergence(self, values: Mapping[str, float], step: StepBatches, index: int) -> None:
        for name in ("loss", "grad_norm"):
            if not torch.tensor(values[name]).isfinite():
                ids = [id for batch in step.batches for id in batch.ids]
                raise DivergedError(
                    f"The {'loss' if name == 'loss' else 'gradient norm'} became {values[name]} at optimizer step "
                    f"{index + 1}, after the examples {', '.join(ids)}. Lower optimizer.lr "
                    f"({self._config.optimizer.lr:g}), warm up longer, or look at these examples."
                )


def answer_cross_entropy(logits: Tensor, batch: Batch) -> Tensor:
    """Summed cross-entropy of the answer's tokens, in nats: comparable across losses, so it is always logged."""
    labels = batch.labels["answer"]
    valid = labels != IGNORED
    return F.cross_entropy(logits[valid].float(), labels[valid], reduction="sum")
