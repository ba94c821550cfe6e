"""What losses may receive beside logits and labels: names, shapes, and the sentences for wrong ones.

`vocabulary` entries describe the vocabulary, stay the same for a whole training and can be bound once. `token` entries
belong to the tokens of one batch and come with every call.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from .errors import BadInput, nearest


@dataclass(frozen=True)
class Context:
    """One kind of context: its shape in words and whether it can be bound before training."""

    shape: str
    meaning: str
    per: str  # "vocabulary" or "token"


CONTEXT: dict[str, Context] = {
    "embedding": Context("(V, H)", "cost embedding, one row a vocabulary entry", "vocabulary"),
    "token_values": Context("(V,)", "number that a token stands for, NaN where it is no number", "vocabulary"),
    "class_counts": Context("(V,)", "occurrences of each token as a label in the training split", "vocabulary"),
    "token_frequencies": Context("(V,)", "frequency of each token among the labels", "vocabulary"),
    "tokens": Context("(..., T) or longer", "token ids at the labels' positions, ignored ones too", "token"),
    "sequence_ids": Context("(...)", "sequence that each label belongs to (packed rows)", "token"),
    "ref_logits": Context("(..., V)", "logits of a frozen reference model", "token"),
    "old_log_probs": Context("(...)", "log p_t of the snapshot model", "token"),
    "head_logits": Context("(..., V)", "logits of a second unembedding head", "token"),
}


def as_tensor(name: str, value: object, device: torch.device | None = None) -> Tensor:
    """Context value as a tensor (lists of numbers are accepted), on `device` if one is given."""
    try:
        tensor = value if isinstance(value, Tensor) else torch.as_tensor(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise BadInput(f"context {name} must be a tensor or numbers, got {type(value).__name__}: {error}.") from error
    if device is not None and tensor.device != device:
        if isinstance(value, Tensor):
            raise BadInput(f"context {name} is on {tensor.device} but the logits are on {device}; move it there first.")
        tensor = tensor.to(device)
    return tensor


def check_names(names: Iterable[str], allowed: Iterable[str], where: str) -> None:
    """Refuse context names that no loss knows (a typing error would otherwise be silent)."""
    known = set(CONTEXT) | set(allowed)
    for name in names:
        if name not in known:
            raise BadInput(f"{where} was given the context {name!r}, which is no known context.{nearest(name, known)}")


def check_shapes(context: Mapping[str, Tensor], labels_shape: torch.Size, vocabulary: int) -> None:
    """Raise a sentence for the first context tensor whose shape does not fit the logits (..., V) and labels (...)."""
    for name, value in context.items():
        shape = tuple(value.shape)
        if name == "embedding":
            fits = value.dim() == 2 and shape[0] == vocabulary
        elif name in ("token_values", "class_counts", "token_frequencies"):
            fits = shape == (vocabulary,)
        elif name in ("ref_logits", "head_logits"):
            fits = shape == (*labels_shape, vocabulary)
        elif name in ("sequence_ids", "old_log_probs"):
            fits = shape == tuple(labels_shape)
        elif name == "tokens":
            fits = value.dim() == len(labels_shape) > 0
            fits = fits and shape[:-1] == tuple(labels_shape[:-1]) and shape[-1] >= labels_shape[-1]
        else:
            fits = True
        if not fits:
            raise BadInput(
                f"context {name} has shape {shape} but must be {CONTEXT[name].shape} "
                f"with V = {vocabulary} and labels {tuple(labels_shape)}."
            )
