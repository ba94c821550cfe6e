"""Which way a loss takes through the fused head, and the term that computes it there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ..base import BatchLoss, Loss, MassLoss, RowLoss, StatisticsLoss, TargetLoss
from ..batch import Batch
from ..families.region import LovaszSoftmax
from ..families.transport import EMO
from ..inputs import IGNORE_INDEX
from .columns import ColumnsTerm, reads_columns
from .lovasz import LovaszTerm
from .masses import MassTerm
from .rows import Place
from .terms import RowTerm, StatisticsTerm, TargetTerm, Term
from .transport import EMOTerm

FAMILIES: tuple[Any, ...] = (TargetLoss, StatisticsLoss, RowLoss, BatchLoss)


def path(loss: nn.Module) -> str:
    """How `linear` computes a loss.

    * `target`, `statistics`, `rows`, `transport`: one pass, or two where the tokens of a batch depend on each other;
    * `masses`: two passes, and sums over the classes;
    * `columns`, `lovasz`: two passes, and the columns of the classes that the loss reads;
    * `whole`: on the logits of all tokens, for modules that are no `Loss`, override its `forward`, have parameters of
      their own or read every column of all tokens.
    """
    cls: Any = type(loss)
    family = next((family for family in FAMILIES if isinstance(loss, family)), None)
    plain = family is not None and not any(True for _ in loss.parameters())
    if not plain or cls.forward is not Loss.forward:
        return "whole"
    assert family is not None
    if type(loss) is LovaszSoftmax and loss.classes == "present" and not loss.per_sequence:
        return "lovasz"
    if isinstance(loss, MassLoss) and (cls.value, cls.per_token) == (MassLoss.value, BatchLoss.per_token):
        return "masses"
    if reads_columns(loss):
        return "columns"
    if cls.per_token is not family.per_token:
        return "whole"
    if isinstance(loss, EMO) and cls.value is EMO.value:
        return "transport"
    if isinstance(loss, TargetLoss):
        return "target"
    if isinstance(loss, StatisticsLoss) and cls.measure is StatisticsLoss.measure:
        return "statistics"
    local = isinstance(loss, RowLoss) and loss.scope == "local" and not loss.state_dict()
    return "rows" if local else "whole"


def term_of(
    loss: Any,
    batch: Batch,
    place: Place,
    dtype: torch.dtype,
    upstream: Tensor | None,
    labels: Tensor,
    product: torch.dtype,
    labels_at_once: int,
) -> Term:
    """The term of a loss that is not computed on whole logits; `labels` are those of all rows of the head."""
    make: dict[str, Callable[..., Term]] = {
        "target": TargetTerm,
        "statistics": StatisticsTerm,
        "rows": RowTerm,
        "masses": MassTerm,
        "columns": ColumnsTerm,
        "lovasz": LovaszTerm,
        "transport": partial(EMOTerm, labels=labels, product=product, at_once=labels_at_once),
    }
    return make[path(loss)](loss, batch, place, dtype, upstream)


def rows_of(batches: Sequence[Batch], by_label: bool) -> tuple[Tensor | None, Tensor, list[Place]]:
    """The rows of the head for these tokens: flat positions (None: all of them), labels, and where each batch is.

    With `by_label` they stand in the order of their labels.
    """
    total = batches[0].shape.numel()
    everywhere = batches[0].labels.new_full((total,), IGNORE_INDEX)
    for batch in batches:
        everywhere[batch.index] = batch.labels
    index = (everywhere != IGNORE_INDEX).nonzero().squeeze(1)
    labels = everywhere[index]
    if by_label:
        labels, order = torch.sort(labels, stable=True)
        index = index[order]
    number = torch.full_like(everywhere, -1)
    number[index] = torch.arange(len(index), device=index.device)
    same = [batch.n == len(index) and not by_label for batch in batches]
    places = [Place(None if s else number[batch.index]) for batch, s in zip(batches, same, strict=True)]
    return None if len(index) == total and not by_label else index, labels, places
