"""From the buckets in the rows to MAUVE and its spread; numpy alone, so that `--recompute` needs no model."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lossbench.errors import DataError
from lossbench.evaluation import mauve

Row = Mapping[str, Any]


def mauve_metrics(rows: Sequence[Row], tuning: Sequence[Row] = (), tuned: Sequence[Row] = ()) -> dict[str, float]:
    """The metrics of rows that `mauve_rows` made, named after the featurizer: with NAME for `mauve[tiny]`, or
    `mauve_indicative[tiny]` where a draw has fewer than 1,000 texts a side,

    NAME                  mean over generation seeds x clustering seeds; NAME/star, NAME/frontier_integral: likewise
    NAME/sd_generation    standard deviation over generation seeds of the mean over clusterings
    NAME/sd_clustering    root of the mean variance over clustering seeds
    NAME/n                the fewest texts of a draw; NAME/dropped: the share of examples of which nothing was compared
    NAME/ceiling          human texts of even rows against human texts of odd rows, NAME/half: against the model's of
                          odd rows. Both have half of the texts and are to be compared with each other alone.

    A draw with fewer than 200 texts has no value; then there is only NAME/n, NAME/dropped and what others give. With
    rows of `tuning` (a temperature a draw, on validation) NAME/tuning_at_T for each temperature, NAME/tuned_temperature
    (the first best one), and NAME/tuned, NAME/tuned_sd_generation of the rows of `tuned` at that temperature.
    """
    scores, fewest = _scores(rows)
    name = f"mauve[{rows[0]['mauve_name']}]"
    if fewest < mauve.INDICATIVE_BELOW:
        name = f"mauve_indicative[{rows[0]['mauve_name']}]"
    kept = np.array([[bool(len(cell)) for cell in row["mauve_human"]] for row in rows])
    found = {f"{name}/n": float(fewest), f"{name}/dropped": float(1 - kept.mean())}
    if scores is not None:
        found[name] = _mean([score.mauve for row in scores for score in row])
        found[f"{name}/star"] = _mean([score.mauve_star for row in scores for score in row])
        found[f"{name}/frontier_integral"] = _mean([score.frontier_integral for row in scores for score in row])
        found |= _spread(name, scores)
    for part in ("ceiling", "half"):
        if all(row.get(f"mauve_{part}") is not None for row in rows):
            found[f"{name}/{part}"] = _of_halves(rows, f"mauve_{part}")
    return found | (_tuned(name, rows, scores, tuning, tuned) if tuning else {})


@dataclass(frozen=True)
class Difference:
    """MAUVE of one model minus that of another under one clustering, with a paired bootstrap interval over prompts."""

    value: float
    low: float
    high: float


def difference(
    rows: Sequence[Row], others: Sequence[Row], *, draws: int = 1000, confidence: float = 0.95, seed: int = 0
) -> Difference:
    """How much better the model of `rows` is than that of `others`, example by example the same human texts.

    The rows must share one clustering (`lossbench evaluate STUDY --joint`). Examples are drawn with replacement, human
    and both models' texts together, and the histograms counted again; the interval is the percentile one.
    """
    count = rows[0]["mauve_buckets"]
    sides = [
        _Labels.of(side, name) for side, name in ((rows, "mauve_human"), (rows, "mauve_model"), (others, "mauve_model"))
    ]

    def gap(weights: NDArray[np.float64]) -> float:
        human, one, other = (side.histograms(weights, count) for side in sides)
        return _mean(
            [
                mauve.from_histograms(p, a) - mauve.from_histograms(p, b)
                for p, a, b in zip(human, one, other, strict=True)
            ]
        )

    generator = np.random.default_rng(seed)
    n = len(rows)
    gaps = [gap(np.bincount(generator.integers(n, size=n), minlength=n).astype(np.float64)) for _ in range(draws)]
    low, high = np.quantile(gaps, [(1 - confidence) / 2, (1 + confidence) / 2])
    return Difference(gap(np.ones(n)), float(low), float(high))


@dataclass(frozen=True)
class _Labels:
    """For each replicate the bucket of every piece, and the example that it belongs to."""

    replicates: list[tuple[NDArray[np.int64], NDArray[np.int64]]]

    @classmethod
    def of(cls, rows: Sequence[Row], column: str) -> _Labels:
        found = []
        for replicate in range(len(rows[0][column])):
            cells = [row[column][replicate] for row in rows]
            labels = np.concatenate([np.asarray(cell, dtype=np.int64) for cell in cells])
            found.append((labels, np.repeat(np.arange(len(cells)), [len(cell) for cell in cells])))
        return cls(found)

    def histograms(self, weights: NDArray[np.float64], count: int) -> list[NDArray[np.float64]]:
        """The histogram of each replicate, with the examples weighted."""
        return [
            np.bincount(labels, weights=weights[owners], minlength=count).astype(np.float64)
            for labels, owners in self.replicates
        ]


def _scores(rows: Sequence[Row]) -> tuple[list[list[mauve.Scores]] | None, int]:
    """Scores by draw and clustering (None where a draw has too few texts), and the fewest texts of a side."""
    count, clusterings = rows[0]["mauve_buckets"], rows[0]["mauve_clusterings"]
    replicates = len(rows[0]["mauve_human"])
    if any(not len(row["mauve_human"]) == len(row["mauve_model"]) == replicates for row in rows) or (
        replicates % clusterings
    ):
        raise DataError("The columns mauve_human and mauve_model do not belong together: their replicates differ.")
    sides = [
        [np.concatenate([np.asarray(row[name][r], dtype=np.int64) for row in rows]) for r in range(replicates)]
        for name in ("mauve_human", "mauve_model")
    ]
    fewest = min(len(labels) for side in sides for labels in side)
    if fewest < mauve.REFUSED_BELOW:
        return None, fewest
    flat = [mauve.from_counts(mauve.counts(p, count), mauve.counts(q, count)) for p, q in zip(*sides, strict=True)]
    return [flat[start : start + clusterings] for start in range(0, replicates, clusterings)], fewest


def _spread(name: str, scores: Sequence[Sequence[mauve.Scores]]) -> dict[str, float]:
    values = np.array([[score.mauve for score in row] for row in scores])
    found = {}
    if len(values) > 1:
        found[f"{name}/sd_generation"] = statistics.stdev(values.mean(axis=1).tolist())
    if values.shape[1] > 1:
        found[f"{name}/sd_clustering"] = float(np.sqrt(values.var(axis=1, ddof=1).mean()))
    return found


def _of_halves(rows: Sequence[Row], column: str) -> float:
    count = rows[0]["mauve_half_buckets"]
    values = []
    for clustering in range(len(rows[0][column])):
        p, q = (
            np.concatenate([np.asarray(row[column][clustering], dtype=np.int64) for row in rows[start::2]])
            for start in (0, 1)
        )
        values.append(mauve.from_histograms(mauve.counts(p, count), mauve.counts(q, count)))
    return _mean(values)


def _tuned(
    name: str,
    rows: Sequence[Row],
    scores: Sequence[Sequence[mauve.Scores]] | None,
    tuning: Sequence[Row],
    tuned: Sequence[Row],
) -> dict[str, float]:
    tried, best = temperatures(tuning), best_temperature(tuning)
    if best is None:
        return {}
    found = {f"{name}/tuning_at_{temperature:g}": value for temperature, value in tried.items()}
    found[f"{name}/tuned_temperature"] = best
    at_best = _scores(tuned)[0] if tuned else scores
    if at_best is not None:
        found[f"{name}/tuned"] = _mean([score.mauve for row in at_best for score in row])
        spread = _spread(name, at_best)
        if f"{name}/sd_generation" in spread:
            found[f"{name}/tuned_sd_generation"] = spread[f"{name}/sd_generation"]
    return found


def temperatures(tuning: Sequence[Row]) -> dict[float, float]:
    """MAUVE on validation by temperature, without those at which too few texts were left."""
    found = {}
    for number, temperature in enumerate(tuning[0]["mauve_temperatures"]):
        clusterings = tuning[0]["mauve_clusterings"]
        part = slice(number * clusterings, (number + 1) * clusterings)
        names = ("mauve_human", "mauve_model")
        cut = [{**row, **{name: list(row[name])[part] for name in names}} for row in tuning]
        scores, _ = _scores(cut)
        if scores is not None:
            found[float(temperature)] = _mean([score.mauve for row in scores for score in row])
    return found


def best_temperature(tuning: Sequence[Row]) -> float | None:
    """The first temperature with the best MAUVE on validation; None where none has a value."""
    tried = temperatures(tuning)
    return max(tried, key=tried.__getitem__) if tried else None


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)
