"""Reliability: among answers given with confidence 0.8, how many were right? One curve a loss."""

from __future__ import annotations

from dataclasses import dataclass

from lossbench.report.checkpoints import Scores
from lossbench.report.records import RunRecord, State
from lossbench.report.statistics import mean
from lossbench.report.table import Table

BINS = 10
RECORDED = {"generated answer": "test/confidence/ece", "choice": "test/choices/ece"}


@dataclass(frozen=True)
class ReliabilityBin:
    """Answers with a confidence in one bin: how many, their mean confidence, and the share that was right."""

    count: int
    confidence: float
    accuracy: float


@dataclass(frozen=True)
class ReliabilityCurve:
    """One loss: the answers of all finished seeds together in `bins`, and the mean over seeds of the expected
    calibration error (15 bins of equal width, as `test/confidence/ece`)."""

    label: str
    index: int
    seeds: int
    bins: tuple[ReliabilityBin, ...]
    ece: float
    of: str


def reliability_curves(table: Table, scores: dict[str, Scores]) -> list[ReliabilityCurve]:
    """Curves of the rows whose runs recorded how sure they were; `scores` by the location of the run."""
    curves = []
    for index, row in enumerate(table.rows):
        runs = [
            run
            for run in row.variant.runs
            if run.state is State.FINISHED and run.location in scores and scores[run.location].confidence is not None
        ]
        found = [scores[run.location] for run in runs]
        if not found or len({one.of for one in found}) > 1:
            continue
        import numpy as np

        from lossbench.evaluation.calibration import reliability

        sure = np.concatenate([one.confidence for one in found if one.confidence is not None])
        right = np.concatenate([one.correct for one in found if one.correct is not None])
        bins = tuple(ReliabilityBin(b.count, b.confidence, b.accuracy) for b in reliability(sure, right, BINS))
        ece = mean([_ece(run, one) for run, one in zip(runs, found, strict=True)])
        curves.append(ReliabilityCurve(row.label, index, len(found), bins, ece, found[0].of))
    return curves


def _ece(run: RunRecord, scores: Scores) -> float:
    """What the run recorded, else the same computed from its examples."""
    recorded = run.metrics.get(RECORDED[scores.of])
    if recorded is not None and 0.0 <= recorded <= 1.0:
        return recorded
    from lossbench.evaluation.calibration import expected_calibration_error

    return expected_calibration_error(scores.confidence, scores.correct)  # type: ignore[arg-type]
