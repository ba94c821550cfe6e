"""Example by example: two checkpoints on the same test set. What is said here is about those checkpoints alone.

Two trainings of one loss with other seeds differ on single examples far more often than chance allows, so a test
over examples cannot tell losses apart (pooled McNemar finds a "difference" between equal losses in 20 to 60 % of the
cases at seed noise of 0.1 to 0.3 logits). Hence no pooling over seeds, no marks, and a table of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lossbench.report.memo import remembered
from lossbench.report.records import RunRecord, State
from lossbench.report.sources._run_files import parquet_columns
from lossbench.report.statistics import SEED, mcnemar_exact
from lossbench.report.table import Table

if TYPE_CHECKING:
    from numpy.typing import NDArray

RESAMPLES = 2000
SIGN_FLIPS = 4999
CHUNK = 128  # pairs in one product
NOTHING = "neither exact match nor the likelihood of the same targets is recorded for both"
COLUMNS = (
    "id",
    "split",
    "em",
    "nll_sum",
    "n_tokens",
    "mean_logprob",
    "choice_logprobs",
    "letter_logprobs",
    "gold_choice",
)


@dataclass(frozen=True)
class Scores:
    """The numbers of one run's test examples, as arrays in the order of `ids`; None where the run has no such column.

    Attributes:
        em: (N,) bool, exact match.
        nll: (N,) float, sum of the negative log-likelihood of the target's tokens, in nats.
        tokens: (N,) float, tokens that `nll` sums over.
        confidence, correct: (N,) probability that the model gave to its answer, and whether that was right.
        of: what the confidence is one of: `generated answer` or `choice`.
    """

    ids: tuple[str, ...]
    em: NDArray[Any] | None = None
    nll: NDArray[Any] | None = None
    tokens: NDArray[Any] | None = None
    confidence: NDArray[Any] | None = None
    correct: NDArray[Any] | None = None
    of: str = ""


@dataclass(frozen=True)
class Bootstrap:
    """Mean difference with its percentile interval over resampled examples, and two-sided p by flipping signs."""

    estimate: float
    low: float
    high: float
    p: float


@dataclass(frozen=True)
class CheckpointPair:
    """One loss against the baseline with one seed, on the examples that both answered.

    Attributes:
        common, total: examples that both have; those that either has. Tests need them equal.
        only_loss, only_baseline: discordant counts of exact match, and McNemar's exact p of them; None without EM.
        em: difference of exact match (loss minus baseline), as a fraction.
        nll: difference of the mean NLL a token, in nats, resampled by example.
        note: why nothing was tested; empty where something was.
    """

    label: str
    index: int
    baseline: str
    seed: int
    common: int
    total: int
    only_loss: int | None = None
    only_baseline: int | None = None
    mcnemar: float | None = None
    em: Bootstrap | None = None
    nll: Bootstrap | None = None
    note: str = ""


def read_scores(run: RunRecord) -> Scores | None:
    """The test examples' numbers of one run; None where it has none, or where they cannot be read.

    Only columns of numbers are read, never the texts. Damage is reported by `RunRecord.read_examples`.
    """
    file = (run.path or Path()) / "examples.parquet"
    if run.path is None or not file.is_file():
        return None
    try:
        columns = parquet_columns(file, COLUMNS)
        return _scores(columns) if "id" in columns else None
    except Exception:  # pyarrow has no common base for what damaged bytes make it raise
        return None


def _scores(columns: Mapping[str, list[Any]]) -> Scores | None:
    import numpy as np

    ids, splits = columns["id"], columns.get("split")
    kept = [place for place in range(len(ids)) if splits is None or splits[place] == "test"]
    if not kept or any(ids[place] is None for place in kept):
        return None
    order = sorted(kept, key=lambda place: str(ids[place]))
    names = tuple(str(ids[place]) for place in order)
    if len(set(names)) != len(names):
        return None

    def column(name: str) -> NDArray[Any] | None:
        found = columns.get(name)
        if found is None or any(found[place] is None for place in order):
            return None
        values = np.asarray([found[place] for place in order], dtype=float)
        return values if bool(np.isfinite(values).all()) else None

    em, nll, tokens = column("em"), column("nll_sum"), column("n_tokens")
    if tokens is not None and not bool((tokens > 0).all()):
        nll = tokens = None
    confidence, correct, of = None, None, ""
    sure = column("mean_logprob")
    if sure is not None and em is not None:
        confidence, correct, of = np.minimum(1.0, np.exp(sure)), em, "generated answer"
    else:
        for name in ("letter_logprobs", "choice_logprobs"):
            found = _choices(columns, name, order)
            if found is not None:
                confidence, correct, of = *found, "choice"
                break
    return Scores(names, em, nll, tokens, confidence, correct, of)


def _choices(columns: Mapping[str, list[Any]], name: str, order: list[int]) -> tuple[NDArray[Any], NDArray[Any]] | None:
    """(probability of the most likely choice, whether it is the gold one), from the softmax over the choices."""
    import numpy as np

    if not {name, "gold_choice"} <= set(columns):
        return None
    rows, gold = columns[name], columns["gold_choice"]
    sure, right = [], []
    for place in order:
        if rows[place] is None or gold[place] is None:
            return None
        values = np.asarray(rows[place], dtype=float)
        if values.size == 0 or not bool(np.isfinite(values).any()):
            return None
        weights = np.exp(values - np.nanmax(values))
        best = int(np.argmax(weights))
        sure.append(float(weights[best] / weights.sum()))
        right.append(float(best == gold[place]))
    return np.asarray(sure), np.asarray(right)


def compare_checkpoints(table: Table, scores: dict[str, Scores], seed: int = SEED) -> list[CheckpointPair]:
    """Every loss against its baseline, seed by seed; `scores` by the location of the run, `seed` of the resampling."""
    by_label = {row.label: row for row in table.rows}
    pairs: list[CheckpointPair] = []
    em: list[NDArray[Any] | None] = []
    nll: list[NDArray[Any] | None] = []
    tokens: list[NDArray[Any] | None] = []
    for index, row in enumerate(table.rows):
        comparison = next((cell.comparison for cell in row.cells if cell.comparison), None)
        if comparison is None or comparison.baseline not in by_label:
            continue
        base = {run.seed: run for run in by_label[comparison.baseline].variant.runs if _is_scored(run, scores)}
        for run in row.variant.runs:
            if run.seed is None or run.seed not in base or not _is_scored(run, scores):
                continue
            ours, theirs = scores[run.location], scores[base[run.seed].location]
            pairs.append(_pair(row.label, index, comparison.baseline, run.seed, ours, theirs))
            is_same = ours.ids == theirs.ids
            em.append(_subtracted(ours.em, theirs.em) if is_same else None)
            # The mean over tokens is a ratio of sums; with equal token counts its difference is linear in examples.
            has_equal_tokens = is_same and (ours.tokens is not None and theirs.tokens is not None)
            has_equal_tokens = has_equal_tokens and bool((ours.tokens == theirs.tokens).all())  # type: ignore[union-attr]
            nll.append(_subtracted(ours.nll, theirs.nll) if has_equal_tokens else None)
            tokens.append(ours.tokens if has_equal_tokens else None)
    of_em = paired_bootstraps(em, [None] * len(em), seed)
    of_nll = paired_bootstraps(nll, tokens, seed)
    return [
        replace(pair, em=first, nll=second) if first or second else replace(pair, note=pair.note or NOTHING)
        for pair, first, second in zip(pairs, of_em, of_nll, strict=True)
    ]


def _is_scored(run: RunRecord, scores: dict[str, Scores]) -> bool:
    return run.state is State.FINISHED and run.location in scores


def _subtracted(ours: NDArray[Any] | None, theirs: NDArray[Any] | None) -> NDArray[Any] | None:
    return None if ours is None or theirs is None else ours - theirs


def _pair(label: str, index: int, baseline: str, seed: int, ours: Scores, theirs: Scores) -> CheckpointPair:
    if ours.ids != theirs.ids:
        common, total = len(set(ours.ids) & set(theirs.ids)), len(set(ours.ids) | set(theirs.ids))
        note = f"the example ids differ ({common} of {total} in common), so nothing is tested"
        return CheckpointPair(label, index, baseline, seed, common, total, note=note)
    n = len(ours.ids)
    if ours.em is None or theirs.em is None:
        return CheckpointPair(label, index, baseline, seed, n, n)
    only_loss, only_baseline = int((ours.em > theirs.em).sum()), int((ours.em < theirs.em).sum())
    p = mcnemar_exact(only_loss, only_baseline)
    return CheckpointPair(label, index, baseline, seed, n, n, only_loss, only_baseline, p)


def paired_bootstraps(
    differences: Sequence[NDArray[Any] | None], weights: Sequence[NDArray[Any] | None], seed: int = SEED
) -> list[Bootstrap | None]:
    """Percentile bootstrap of sum(d) / sum(w) over examples, and the p of a sign-flip test, for many pairs at once.

    Args:
        differences: for each pair (N,) paired differences, one an example; None gives None.
        weights: for each pair (N,) what they are divided by in sum (tokens); None for 1 an example.
        seed: of the resampling. All pairs with N examples share the resamples, so that they can be compared.

    Returns:
        For each pair: estimate = sum(d) / sum(w); the 2.5 and 97.5 percentiles of `RESAMPLES` resamples of N examples;
        p = (1 + #{|flipped| >= |observed|}) / (1 + `SIGN_FLIPS`), which is never 0.
    """
    import numpy as np

    found: list[Bootstrap | None] = [None] * len(differences)
    for size in sorted({len(d) for d in differences if d is not None}):
        places = [i for i, d in enumerate(differences) if d is not None and len(d) == size]
        counts, signs = _resamples(size, seed)
        for start in range(0, len(places), CHUNK):
            part = places[start : start + CHUNK]
            d = np.stack([np.asarray(differences[i], dtype=np.float32) for i in part], axis=1)
            w = np.stack([np.ones(size) if (given := weights[i]) is None else given for i in part], axis=1)
            # Sums of whole numbers are exact in single precision, those of likelihoods good to seven digits.
            means = (counts @ d).astype(float) / (counts @ w.astype(np.float32)).astype(float)
            low, high = percentile_interval(means)
            observed = np.abs(d.sum(axis=0, dtype=np.float64))
            extreme = (np.abs(signs @ d) >= observed * (1 - 1e-5)).sum(axis=0)  # 1e-5: sums are of single precision
            for column, place in enumerate(part):
                exact = np.asarray(differences[place], dtype=float)
                estimate = float(exact.sum() / w[:, column].sum())
                p = (1 + int(extreme[column])) / (1 + len(signs))
                found[place] = Bootstrap(estimate, float(low[column]), float(high[column]), p)
    return found


def percentile_interval(resampled: Any, confidence: float = 0.95) -> tuple[Any, Any]:
    """The percentile interval over the first axis, by linear interpolation."""
    import numpy as np

    tail = 50 * (1 - confidence)
    low, high = np.percentile(np.asarray(resampled, dtype=float), [tail, 100 - tail], axis=0)
    return low, high


@cache
def _resamples(size: int, seed: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """How often each of `size` examples is drawn (resamples, size), and random signs (flips, size)."""
    import numpy as np

    random = np.random.default_rng([seed, size])
    resamples, flips = _rows(RESAMPLES, size), _rows(SIGN_FLIPS, size)
    drawn = random.integers(0, size, (resamples, size))
    counts = np.zeros((resamples, size), dtype=np.float32)
    for row, places in zip(counts, drawn, strict=True):
        row[:] = np.bincount(places, minlength=size)
    signs = random.integers(0, 2, (flips, size), dtype=np.int8).astype(np.float32) * 2 - 1
    return counts, signs


def _rows(wanted: int, size: int) -> int:
    """Fewer resamples for very large test sets: the two matrices stay below about 100 MB each."""
    return int(min(wanted, max(499, 25_000_000 // max(1, size))))


def scores_of(table: Table) -> dict[str, Scores]:
    """Scores of all finished runs of a table, by location. Runs with the same examples share one tuple of ids."""
    found = {}
    shared: dict[tuple[str, ...], tuple[str, ...]] = {}
    for row in table.rows:
        for run in row.variant.runs:
            if run.state is not State.FINISHED:
                continue
            scores = remembered("scores", run, partial(read_scores, run))
            if scores is not None:
                found[run.location] = replace(scores, ids=shared.setdefault(scores.ids, scores.ids))
    return found
