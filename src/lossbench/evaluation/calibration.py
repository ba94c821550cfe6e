"""Does a model's confidence mean what it says? Among answers given with confidence 0.8, eight of ten should be right.

Pure numpy on two columns: the probability that was given to an answer, and whether it was right.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lossbench.errors import ConfigError, DataError

BINS = 15
Binning = Literal["equal_width", "adaptive"]


@dataclass(frozen=True)
class Bin:
    """A row of the reliability table: the answers with a confidence in [low, high); the last bin holds 1 too."""

    low: float
    high: float
    count: int
    confidence: float  # mean
    accuracy: float


def reliability(
    confidence: ArrayLike, correct: ArrayLike, bins: int = BINS, binning: Binning = "equal_width"
) -> list[Bin]:
    """The bins that hold an answer, in order.

    Args:
        confidence: (N,) probabilities, 0 to 1. correct: (N,) whether each answer was right.
        binning: `equal_width`: bins of width 1/bins. `adaptive`: bins of (nearly) equal count, by sorted confidence;
            answers of the same confidence can then fall into two bins.

    Raises `DataError` where the columns do not fit or hold no probabilities.
    """
    p, right = _columns(confidence, correct)
    if bins < 1:
        raise ConfigError(f"A reliability table needs at least one bin, got {bins}.")
    order = np.argsort(p, kind="stable")
    if binning == "equal_width":
        edges = np.linspace(0, 1, bins + 1)
        number = np.clip(np.searchsorted(edges, p[order], side="right") - 1, 0, bins - 1)
        groups = [(edges[b], edges[b + 1], order[number == b]) for b in range(bins)]
    else:
        groups = [(p[part[0]], p[part[-1]], part) for part in np.array_split(order, bins) if len(part)]
    return [
        Bin(float(low), float(high), len(part), float(p[part].mean()), float(right[part].mean()))
        for low, high, part in groups
        if len(part)
    ]


def expected_calibration_error(
    confidence: ArrayLike, correct: ArrayLike, bins: int = BINS, binning: Binning = "equal_width"
) -> float:
    """ECE = sum_b n_b / N |accuracy_b - confidence_b| (Naeini et al. 2015; Guo et al. 2017, arXiv 1706.04599)."""
    table = reliability(confidence, correct, bins, binning)
    total = sum(row.count for row in table)
    return math.fsum(row.count / total * abs(row.accuracy - row.confidence) for row in table)


def maximum_calibration_error(
    confidence: ArrayLike, correct: ArrayLike, bins: int = BINS, binning: Binning = "equal_width"
) -> float:
    """MCE = max_b |accuracy_b - confidence_b|."""
    return max(abs(row.accuracy - row.confidence) for row in reliability(confidence, correct, bins, binning))


def brier(confidence: ArrayLike, correct: ArrayLike) -> float:
    """mean (p - y)^2 of the probability p of being right, y in {0, 1}; 0 is best, always saying 0.5 gives 0.25."""
    p, right = _columns(confidence, correct)
    return float(np.mean((p - right) ** 2))


def negative_log_likelihood(confidence: ArrayLike, correct: ArrayLike) -> float:
    """mean -(y log p + (1 - y) log(1 - p)) in nats; infinite for an answer that was certain and wrong."""
    p, right = _columns(confidence, correct)
    with np.errstate(divide="ignore"):
        return float(-np.mean(np.log(np.where(right == 1, p, 1 - p))))


def area_under_roc(confidence: ArrayLike, correct: ArrayLike) -> float:
    """The chance that a right answer was given with more confidence than a wrong one, ties counting half; NaN where all
    answers are right or all wrong."""
    p, right = _columns(confidence, correct)
    n_right, n_wrong = int(right.sum()), int((1 - right).sum())
    if not n_right or not n_wrong:
        return math.nan
    _, inverse, counts = np.unique(p, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[inverse]  # mean rank of ties, from 1
    return float((ranks[right == 1].sum() - n_right * (n_right + 1) / 2) / (n_right * n_wrong))


def softmax(log_probs: Sequence[float]) -> list[float]:
    """Probabilities among the options: exp(l_i) / sum_j exp(l_j)."""
    top = max(log_probs)
    weights = [math.exp(value - top) for value in log_probs]
    total = math.fsum(weights)
    return [weight / total for weight in weights]


def multiclass_brier(probabilities: Sequence[Sequence[float]], labels: Sequence[int]) -> float:
    """mean over examples of sum_i (p_i - 1[i = label])^2, 0 to 2 (Brier 1950)."""
    return math.fsum(
        math.fsum((p - (place == label)) ** 2 for place, p in enumerate(row))
        for row, label in zip(probabilities, labels, strict=True)
    ) / len(labels)


def top_choice(probabilities: Sequence[Sequence[float]], labels: Sequence[int]) -> tuple[list[float], list[bool]]:
    """Confidence of the most probable option of each example (the first of equal ones), and whether it is the label."""
    best = [max(range(len(row)), key=row.__getitem__) for row in probabilities]
    confidence = [row[place] for row, place in zip(probabilities, best, strict=True)]
    return confidence, [place == label for place, label in zip(best, labels, strict=True)]


def _columns(confidence: ArrayLike, correct: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    p, right = np.asarray(confidence, dtype=np.float64), np.asarray(correct, dtype=np.float64)
    if p.ndim != 1 or p.shape != right.shape or not p.size:
        raise DataError(f"Confidence and correctness must be two columns of one length, got {p.shape}, {right.shape}.")
    if not ((p >= 0) & (p <= 1)).all() or not np.isin(right, (0, 1)).all():
        raise DataError("Confidence must hold probabilities between 0 and 1, and correctness only 0 and 1.")
    return p, right
