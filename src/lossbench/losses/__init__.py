"""Training losses of causal language models, each described by the least that it needs to see.

    from lossbench import losses

    loss = losses.create("focal", gamma=2.0)
    loss(logits, labels)                     # logits (..., V), labels (...), -100 ignored, already aligned
    losses.linear(hidden, weight, labels, loss)   # the same from the LM head, without the logits of all tokens

The package needs torch and the standard library only.
"""

from .base import BatchLoss, Columns, Loss, Masses, MassLoss, RowLoss, Statistics, StatisticsLoss, TargetLoss
from .batch import Batch
from .check import CheckReport, CheckResult, check
from .curves import curve
from .describe import LossInfo, info
from .equivalences import same_gradient, warn_of_twins
from .errors import BadInput, BadParameter, LossError, MissingContext, UnknownLoss
from .fused import LowRank, linear, linear_terms
from .mixture import Mixture, mixture
from .numerics import stop_gradient
from .registry import available, create, get, register

__all__ = [
    "BadInput",
    "BadParameter",
    "Batch",
    "BatchLoss",
    "CheckReport",
    "CheckResult",
    "Columns",
    "Loss",
    "LossError",
    "LossInfo",
    "LowRank",
    "MassLoss",
    "Masses",
    "MissingContext",
    "Mixture",
    "RowLoss",
    "Statistics",
    "StatisticsLoss",
    "TargetLoss",
    "UnknownLoss",
    "available",
    "check",
    "create",
    "curve",
    "get",
    "info",
    "linear",
    "linear_terms",
    "mixture",
    "register",
    "same_gradient",
    "stop_gradient",
    "warn_of_twins",
]
