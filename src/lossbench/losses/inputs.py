"""What logits, labels, reduction and normalizer must look like; one sentence for each way in which they do not fit."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .errors import BadInput

IGNORE_INDEX = -100
REDUCTIONS = ("mean", "sum", "none")
INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


def check_inputs(logits: Tensor, labels: Tensor, reduction: str, normalizer: float | Tensor | None) -> None:
    """Raise `BadInput` for the first thing that does not fit."""
    for name, value in (("logits", logits), ("labels", labels)):
        if not isinstance(value, Tensor):
            raise BadInput(f"{name} must be a tensor, got {type(value).__name__}.")
    if not logits.is_floating_point():
        raise BadInput(f"logits must be float16, bfloat16, float32 or float64, got {logits.dtype}.")
    if labels.dtype not in INTEGERS:
        raise BadInput(f"labels must be integer token ids (int64), got {labels.dtype}.")
    if logits.dim() == 0 or logits.shape[:-1] != labels.shape:
        raise BadInput(
            f"logits have shape {tuple(logits.shape)} and labels {tuple(labels.shape)}; labels must have the shape of "
            "logits without the last dimension (V), already aligned."
        )
    if logits.shape[-1] < 2:
        raise BadInput(f"logits must have at least 2 classes in the last dimension, got {logits.shape[-1]}.")
    if labels.device != logits.device:
        raise BadInput(f"labels are on {labels.device} but the logits are on {logits.device}; move them together.")
    if reduction not in REDUCTIONS:
        raise BadInput(f"reduction is {reduction!r}; it must be one of {', '.join(REDUCTIONS)}.")
    if normalizer is not None:
        if reduction != "mean":
            raise BadInput(f"normalizer replaces the number of tokens in reduction 'mean', not in {reduction!r}.")
        if not (math.isfinite(float(normalizer)) and float(normalizer) > 0):
            raise BadInput(f"normalizer must be a positive number of tokens, got {float(normalizer):g}.")
