"""How the devices of a run share the work: `trainer.strategy` as Lightning's strategies."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from lossbench.config import RunConfig
from lossbench.errors import ConfigError
from lossbench.training.ranks import Ranks

if TYPE_CHECKING:
    from lightning.pytorch.strategies import Strategy
    from torch import nn

    from lossbench.losses import Mixture

PATIENCE = timedelta(hours=6)  # how long ranks wait for the first one, which validates alone


def shards(config: RunConfig, ranks: Ranks) -> bool:
    """Whether no rank holds all of the weights, so that every forward pass needs all ranks."""
    return config.trainer.strategy == "fsdp" and ranks.world_size > 1


def check_strategy(config: RunConfig, objective: Mixture) -> None:
    """Raise a `ConfigError` for what a strategy cannot do."""
    strategy = config.trainer.strategy
    if strategy == "deepspeed":
        raise ConfigError(
            "trainer.strategy=deepspeed cannot be used: DeepSpeed keeps the moments in files of its own, from which a "
            "run could not go on exactly. trainer=fsdp shares weights, gradients and moments among devices too."
        )
    if strategy != "fsdp":
        return
    if config.peft.method == "qlora":
        raise ConfigError(f"peft=qlora does not work with trainer.strategy={strategy}: take ddp, or peft=lora.")
    if config.optimizer.ema_decay is not None:
        raise ConfigError(f"optimizer.ema_decay does not work with trainer.strategy={strategy}: take ddp, or null.")
    needs = {*objective.needs} & {"ref_logits", "old_log_probs", "head_logits"}
    if needs:
        raise ConfigError(
            f"loss={config.loss.name} needs {' and '.join(sorted(needs))}, from weights that are not the model's own, "
            f"which trainer.strategy={strategy} does not share among devices: take ddp."
        )


def strategy_of(config: RunConfig, ranks: Ranks) -> Strategy | str:
    """Lightning's strategy for this run."""
    from lightning.pytorch.strategies import DDPStrategy, ModelParallelStrategy

    if ranks.world_size == 1:
        return "auto"
    if config.trainer.strategy == "fsdp":
        return ModelParallelStrategy(data_parallel_size=ranks.world_size, tensor_parallel_size=1, timeout=PATIENCE)
    # Buffers are those of losses with a state, of which every rank has its own.
    return DDPStrategy(broadcast_buffers=False, gradient_as_bucket_view=True, timeout=PATIENCE)


def without_sync(strategy: Strategy) -> Callable[[], AbstractContextManager[Any]]:
    """For the backward passes of a step but the last: gradients need to travel once a step."""
    from lightning.pytorch.strategies import DDPStrategy

    return strategy.block_backward_sync if isinstance(strategy, DDPStrategy) else nullcontext


def shard(model: Any, mesh: Any) -> None:
    """FSDP2 on a causal LM: each decoder layer is gathered when it is needed; the rest, the head too, stays gathered
    from the forward pass to the end of the backward pass, since the loss multiplies with the head outside of them."""
    from torch.distributed.fsdp import fully_shard

    for layer in _layers(model):
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh, reshard_after_forward=False)


def reshard(model: Any) -> None:
    """Give back what a forward pass without a backward pass has gathered and kept."""
    from torch.distributed.fsdp import FSDPModule

    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.reshard()


def _layers(model: Any) -> list[nn.Module]:
    """The modules that transformers says must not be split over devices: decoder layers."""
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    names = set(getattr(base, "_no_split_modules", None) or ())
    found = [module for module in base.modules() if type(module).__name__ in names]
    if not found:
        raise ConfigError(
            f"trainer.strategy=fsdp finds no layers in {type(base).__name__} to share among devices, since its code "
            "names none (_no_split_modules): take ddp."
        )
    return found
