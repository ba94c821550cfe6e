"""Optimizer and learning rate."""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.optim.lr_scheduler import LambdaLR

from lossbench.config import OptimizerConfig, SchedulerConfig


def create_optimizer(model: nn.Module, config: OptimizerConfig) -> torch.optim.Optimizer:
    """The configured optimizer over what is trainable, in two groups: matrices, which are decayed, and the rest.

    What is not decayed are vectors: norms and biases of every architecture. Embeddings and heads are matrices.
    """
    trainable = [weight for weight in model.parameters() if weight.requires_grad]
    groups = [
        {"params": [w for w in trainable if w.dim() > 1], "weight_decay": config.weight_decay},
        {"params": [w for w in trainable if w.dim() <= 1], "weight_decay": 0.0},
    ]
    if config.name == "sgd":
        assert config.momentum is not None  # the schema's word
        return torch.optim.SGD(groups, lr=config.lr, momentum=config.momentum)
    assert config.betas is not None and config.eps is not None
    if config.name == "adamw":
        return torch.optim.AdamW(groups, lr=config.lr, betas=config.betas, eps=config.eps)
    return _adamw_8bit(model, groups, config.lr, config.betas, config.eps)


def _adamw_8bit(
    model: nn.Module, groups: list[dict], lr: float, betas: tuple[float, float], eps: float
) -> torch.optim.Optimizer:
    """bitsandbytes' AdamW; the states of embeddings stay in 32 bits, which its authors found to be needed."""
    from bitsandbytes.optim import AdamW8bit, GlobalOptimManager

    manager = GlobalOptimManager.get_instance()
    for module in model.modules():
        if isinstance(module, nn.Embedding):
            manager.register_module_override(module, "weight", {"optim_bits": 32})
    return AdamW8bit(groups, lr=lr, betas=betas, eps=eps)


def schedule(optimizer: torch.optim.Optimizer, config: SchedulerConfig, steps: int) -> LambdaLR:
    """Scales the learning rate of step 0, 1, ... `steps` - 1."""
    return LambdaLR(optimizer, lambda step: rate_factor(config, step, steps))


def rate_factor(config: SchedulerConfig, step: int, steps: int) -> float:
    """Share of the peak learning rate that optimizer step `step` (from 0) of `steps` uses.

    Warm-up rises linearly and never starts at 0; the decay would reach `final_fraction` right after the last step.
    """
    warmup = math.ceil(config.warmup_fraction * steps)
    if step < warmup:
        return (step + 1) / (warmup + 1)
    if config.name == "constant":
        return 1.0
    progress = min(1.0, (step - warmup) / max(1, steps - warmup))
    fall = progress if config.name == "linear" else 0.5 * (1 - math.cos(math.pi * progress))
    return 1.0 - (1.0 - config.final_fraction) * fall
