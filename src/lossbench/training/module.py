"""The Lightning module: one call of `training_step` is one whole optimizer step."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any
from zlib import crc32

import lightning as L
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from transformers import PreTrainedModel

from lossbench.config import RunConfig
from lossbench.data.batches import IGNORED, Batch, StepBatches
from lossbench.errors import DivergedError
from lossbench.losses import Mixture, create, linear, linear_terms
from lossbench.training.checkpoint import trainable
from lossbench.training.context import Context
from lossbench.training.ema import WeightAverage
from lossbench.training.gate import gate_sum, has_gate
from lossbench.training.head import choose
from lossbench.training.optimization import create_optimizer, schedule
from lossbench.training.ranks import Ranks
from lossbench.training.strategy import shard, shards

Log = Callable[[int, Mapping[str, float]], None]
ALONE = Ranks()


class FineTuning(L.LightningModule):
    """Fine-tunes `model` under `objective`.

    Optimization is manual: the loop over micro-batches is here, so that every micro-batch's sum is divided by the token
    count of the whole step, and accumulation gives the gradient of one large batch.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        objective: Mixture,
        context: Context,
        config: RunConfig,
        steps: int,
        log: Log,
        ranks: Ranks = ALONE,
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
        self.average: WeightAverage | None = None
        self.ranks = ranks
        # for all backward passes of a step but the last
        self.without_sync: Callable[[], AbstractContextManager[Any]] = nullcontext
        self.model.train()  # from_pretrained returns eval mode, in which dropout is off

    def configure_model(self) -> None:
        """Share the weights among devices, where the strategy does; Lightning calls this when all ranks are there."""
        if shards(self._config, self.ranks):
            assert self.device_mesh is not None  # Lightning's, under this strategy
            shard(self.model, self.device_mesh["data_parallel"])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        optimizer = create_optimizer(self, self._config.optimizer)
        self.schedule = schedule(optimizer, self._config.scheduler, self.steps)
        if self._config.optimizer.ema_decay is not None:
            self.average = WeightAverage(self, self._config.optimizer.ema_decay)
        return optimizer

    def averaged(self) -> AbstractContextManager[None]:
        """Within, the weights are those to evaluate and to keep: the average if there is one."""
        return self.average.applied() if self.average else nullcontext()

    def training_step(self, step: StepBatches, index: int) -> dict[str, dict[str, float]]:
        """One optimizer step, `step.number`; `index` is Lightning's count, which starts at 0 after a restart."""
        optimizer = self.optimizers()
        assert not isinstance(optimizer, list)
        done = step.number + 1
        logging = done % self._config.trainer.log_every == 0 or done == self.steps
        parts: dict[str, Tensor] = {}
        for place, batch in enumerate(step.batches):
            torch.manual_seed(self._forward_seed(step.number, place))
            last = place + 1 == len(step.batches)
            with nullcontext() if last else self.without_sync():
                loss, found = self._losses(batch, step, logging)
                self.manual_backward(loss * self.ranks.world_size)  # ranks' gradients are averaged, and ours are shares
            for name, part in found.items():
                parts[name] = parts[name] + part.detach() if name in parts else part.detach()
        norm = self._clipped_norm()
        *sums, grad_norm = torch.stack([*(part.float() for part in parts.values()), norm.float()]).tolist()
        values = self.ranks.sums(dict(zip(parts, sums, strict=True)), self.device) | {"grad_norm": grad_norm}
        self._refuse_divergence(values, step)
        values["lr"] = float(self.schedule.get_last_lr()[0])
        optimizer.step()
        self.schedule.step()
        optimizer.zero_grad()
        if self.average:
            self.average.update()
        if logging:
            self._log(done, {f"train/{name}": value for name, value in values.items()})
        return {"values": values}

    def _forward_seed(self, number: int, place: int) -> int:
        """Seeds dropout by the place of a micro-batch in the plan: the same at any world size and after a restart."""
        place = self.ranks.rank + place * self.ranks.world_size
        return crc32(f"{self._config.seed}-{number}-{place}".encode())

    def _losses(self, batch: Batch, step: StepBatches, logging: bool) -> tuple[Tensor, dict[str, Tensor]]:
        """The objective on a micro-batch, to be differentiated, and what is logged of it."""
        with self.head.taken_out() if self.head else nullcontext():
            outputs = self.model(
                input_ids=batch.input_ids,
                attention_mask=batch.attention_mask,
                output_hidden_states=self.context.wants_hidden_states,
            )
        hidden = outputs.hidden_states[-1] if self.context.wants_hidden_states else None
        context = self.context.of(self.model, batch, hidden, step.number)
        if self.head is None:
            logits = outputs.logits
            terms = self.objective.terms(logits, batch.labels, normalizer=step.normalizer, **context)
            loss = self.objective.total(terms, step=step.number)
            nll = answer_cross_entropy(logits.detach(), batch) / step.normalizer["answer"] if logging else None
        else:
            fused = linear_terms(
                self.head.inputs(outputs),
                self.head.weight,
                batch.labels,
                self.objective,
                self.head.bias,
                low_rank=self.head.low_rank,
                normalizer=step.normalizer,
                step=step.number,
                watch={"cross_entropy": "answer"} if logging else {},
                **context,
            )
            loss, terms = fused.total, fused.values
            nll = terms.pop("watch/cross_entropy", None)
        parts = {"loss": loss, **{f"term/{name}": value for name, value in terms.items() if len(terms) > 1}}
        if logging and has_gate(self.objective):
            gates = self._gates(outputs, batch, step.number, context)
            parts["gate_mean"] = gates / step.normalizer["answer"]
        return loss, parts if nll is None else {**parts, "cross_entropy": nll}

    def _gates(self, outputs: Any, batch: Batch, number: int, context: Mapping[str, Any]) -> Tensor:
        """Sum over the answer's tokens of the share of cross-entropy's gradient that the objective lets through."""
        head = self.head

        def log_p_of(labels: Tensor) -> Tensor:
            if head is None:
                logits = outputs.logits.detach()
                nll = F.cross_entropy(logits.flatten(0, -2).float(), labels.flatten(), reduction="none")
                return -nll
            inputs, cross_entropy = head.inputs(outputs), create("cross_entropy")
            return -linear(
                inputs, head.weight, labels, cross_entropy, head.bias, low_rank=head.low_rank, reduction="none"
            )

        vocabulary = outputs.logits.shape[-1] if head is None else head.weight.shape[0]
        return gate_sum(self.objective, log_p_of, batch.labels, vocabulary, number, context)

    def transfer_batch_to_device(self, batch: StepBatches, device: torch.device, dataloader_idx: int) -> StepBatches:
        return batch.to(device)

    def _clipped_norm(self) -> Tensor:
        """The gradient norm before clipping, a scalar."""
        most = self._config.trainer.gradient_clip or float("inf")
        norm = nn.utils.clip_grad_norm_([weight for _, weight in trainable(self)], most)
        return norm.full_tensor() if isinstance(norm, DTensor) else norm

    def _refuse_divergence(self, values: Mapping[str, float], step: StepBatches) -> None:
        for name in ("loss", "grad_norm"):
            if not math.isfinite(values[name]):
                ids = [id for batch in step.batches for id in batch.ids]
                raise DivergedError(
                    f"The {'loss' if name == 'loss' else 'gradient norm'} became {values[name]} at optimizer step "
                    f"{step.number + 1}, after the examples {', '.join(ids)}. Lower optimizer.lr "
                    f"({self._config.optimizer.lr:g}), warm up longer, or look at these examples."
                )


def answer_cross_entropy(logits: Tensor, batch: Batch) -> Tensor:
    """Summed cross-entropy of the answer's tokens, in nats: comparable across losses, so it is always logged."""
    labels = batch.labels["answer"]
    valid = labels != IGNORED
    return F.cross_entropy(logits[valid].float(), labels[valid], reduction="sum")
