"""Optimizer and learning rate."""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.optim.lr_scheduler import LambdaLR

from lossbench.config import OptimizerConfig, SchedulerConfig


def adamw(model: nn.Module, config: OptimizerConfig) -> torch.optim.AdamW:
    """AdamW over what is trainable; norms and biases are not decayed."""
    trainable = [weight for weight in model.parameters() if weight.requires_grad]
    groups = [
        {"params": [w for w in trainable if w.dim() > 1], "weight_decay": config.weight_decay},
        {"params": [w for w in trainable if w.dim() <= 1], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=config.lr, betas=config.betas, eps=config.eps)


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
