"""MAUVE (Pillutla et al. 2021, https://arxiv.org/abs/2102.01454): how close a model's texts are to human ones, 0 to 1.

    features -> unit length -> PCA (90 % of the variance) -> k-means of both sides together -> histograms P and Q
    curve:  R_w = w P + (1 - w) Q,  points (exp(-c KL(Q|R_w)), exp(-c KL(P|R_w))),  MAUVE = area under the curve

`from_histograms` is the definition from the histograms on; it needs numpy alone. `buckets` makes the histograms, and
`check_against_mauve_text` compares the whole way with the reference package; both need the extra `lossbench[mauve]`.
P is the human side, Q the model's. Not at random: swapping them changes the order of the rows and so the clusters.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lossbench.errors import ConfigError, DataError

REFUSED_BELOW = 200
INDICATIVE_BELOW = 1000
TEXTS_PER_BUCKET = 10
FEW = 2**20  # elements of features that one thread is quickest with
EDGE = 1e-6
"""Mixture weights run from EDGE to 1 - EDGE."""


@dataclass(frozen=True)
class Scores:
    """What two histograms of counts say; `mauve_star` and `frontier_integral_star` with half a text more in each bucket
    (Krichevsky-Trofimov), which the frontier integral's and MAUVE's bias at small samples calls for."""

    mauve: float
    mauve_star: float
    frontier_integral: float
    frontier_integral_star: float


def from_histograms(p: ArrayLike, q: ArrayLike, scaling_factor: float = 5.0, discretization: int = 25) -> float:
    """MAUVE of two histograms over the same buckets.

    Args:
        p: (buckets,) counts or shares of the human texts. q: of the model's texts.
        scaling_factor: c of the formula. discretization: number of mixture weights.

    Equal histograms give exactly 1, and disjoint ones the floor of the scale (0.00407 at c = 5), not 0. The reference
    implementation sorts the curve's points without regard to ties, so that equal histograms can give 0.75 there; here
    ties keep the order of the curve and a KL divergence below 0 by rounding is 0. Everything is float64.

    Raises `DataError` for histograms of different length, without texts, or with negative, NaN or infinite entries,
    and `ConfigError` for an impossible scaling factor or discretization.
    """
    if not scaling_factor > 0 or discretization < 2:
        raise ConfigError(
            f"MAUVE needs a scaling factor above 0 and at least 2 points, got {scaling_factor} and {discretization}."
        )
    human, model = _shares(p, q)
    curve = [(1.0, 0.0)]
    for weight in np.linspace(EDGE, 1 - EDGE, discretization):
        mixture = model + weight * (human - model)  # exactly `model` where both are equal
        curve.append(tuple(math.exp(-scaling_factor * _kl(side, mixture)) for side in (model, human)))  # type: ignore[arg-type]
    curve.append((0.0, 1.0))
    x, y = np.array(curve).T
    # Along the curve x falls and y rises, so for areas over x it is read backwards.
    return 0.5 * (_area(x[::-1], y[::-1]) + _area(y, x))


def frontier_integral(p: ArrayLike, q: ArrayLike) -> float:
    """The frontier integral (Liu et al. 2021, https://arxiv.org/abs/2106.07898) of two histograms, 0 (equal) to 1:

    sum_i (p_i + q_i) / 2 - p_i q_i (log p_i - log q_i) / (p_i - q_i)
    """
    human, model = _shares(p, q)
    middle = np.zeros_like(human)
    both = (human > 0) & (model > 0)
    equal = both & (np.abs(human - model) <= 1e-8)
    middle[equal] = human[equal] / 2 + model[equal] / 2
    apart = both & ~equal
    a, b = human[apart], model[apart]
    middle[apart] = a * b * (np.log(a) - np.log(b)) / (a - b)
    return float(np.sum((human + model) / 2 - middle))


def from_counts(p: ArrayLike, q: ArrayLike, scaling_factor: float = 5.0, discretization: int = 25) -> Scores:
    """All scores of two histograms of counts over the same buckets; empty ones count when smoothed."""
    human, model = np.asarray(p, dtype=np.float64), np.asarray(q, dtype=np.float64)
    return Scores(
        from_histograms(human, model, scaling_factor, discretization),
        from_histograms(human + 0.5, model + 0.5, scaling_factor, discretization),
        frontier_integral(human, model),
        frontier_integral(human + 0.5, model + 0.5),
    )


def number_of_buckets(n_texts: int) -> int:
    """The default: one bucket for ten texts of a side, at least two; fixed by the data, so equal for all models."""
    return max(2, round(n_texts / TEXTS_PER_BUCKET))


def buckets(
    human: NDArray[Any],
    model: NDArray[Any],
    count: int,
    seed: int,
    *,
    explained_variance: float = 0.9,
    redo: int = 5,
    iterations: int = 500,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The bucket, 0 to count - 1, of each human and each model text, by k-means over both sides together.

    Args:
        human, model: (texts, features). count: number of buckets. seed: of PCA (+1) and of k-means (+2).

    The steps and seeds are those of mauve-text 0.4.0, with the same histograms (see `clusters`).
    """
    _check_features(human, model, count)
    found_model, found_human = clusters(
        [model, human], count, seed, explained_variance=explained_variance, redo=redo, iterations=iterations
    )
    return found_human, found_model


def clusters(
    sides: Sequence[NDArray[Any]],
    count: int,
    seed: int,
    *,
    explained_variance: float = 0.9,
    redo: int = 5,
    iterations: int = 500,
) -> list[NDArray[np.int64]]:
    """The bucket of each text of each side, by PCA and k-means over all of them together.

    Two sides in the order model, human are what mauve-text clusters; with more models at once all of them share the
    same buckets, so that their scores can be compared. Threads are pinned to the cores at hand: k-means on more threads
    than cores is twenty times slower.
    """
    faiss, decomposition, preprocessing = _packages()
    data = np.vstack(sides)
    with pinned_threads(data.size):
        data = preprocessing.normalize(data, norm="l2", axis=1)
        if np.ptp(data, axis=0).max() == 0:  # all texts are the same text: PCA would divide by a variance of zero
            return [np.zeros(len(side), dtype=np.int64) for side in sides]
        pca = decomposition.PCA(n_components=None, whiten=False, random_state=seed + 1).fit(data)
        kept = int(np.argmax(np.cumsum(pca.explained_variance_ratio_) >= explained_variance)) + 1
        reduced = np.ascontiguousarray(pca.transform(data)[:, :kept], dtype=np.float32)
        kmeans = faiss.Kmeans(
            kept, count, niter=iterations, nredo=redo, update_index=True, seed=seed + 2, min_points_per_centroid=1
        )  # the last changes no value: it keeps faiss from asking for 39 texts a bucket
        kmeans.train(reduced)
        _, labels = kmeans.index.search(reduced, 1)
    return np.split(labels.reshape(-1), np.cumsum([len(side) for side in sides])[:-1])


def counts(labels: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """(count,) number of texts in each bucket."""
    return np.bincount(labels, minlength=count)


def check_against_mauve_text(human: NDArray[Any], model: NDArray[Any], count: int, seed: int, found: Scores) -> None:
    """Compute the same by mauve-text and raise `DataError` unless both agree to 1e-6.

    MAUVE is compared through the reference's histograms, as its own value suffers from ties (see `from_histograms`).
    """
    compute_mauve = _mauve_text()
    with pinned_threads(human.size + model.size):
        expected = compute_mauve(p_features=human, q_features=model, num_buckets=count, seed=seed)
    own = from_histograms(expected.p_hist, expected.q_hist)
    pairs = [(found.mauve, own), (found.frontier_integral, float(expected.frontier_integral))]
    if any(abs(ours - theirs) > 1e-6 for ours, theirs in pairs):
        raise DataError(
            f"MAUVE {found.mauve:.6f} is not what mauve-text makes of the same features ({own:.6f}, seed {seed}): the "
            "installed faiss-cpu or scikit-learn differs from the pinned ones (constraints.txt)."
        )


def check_number_of_texts(n_texts: int, what: str) -> None:
    """Raise `DataError` where there are too few texts for any claim."""
    if n_texts < REFUSED_BELOW:
        raise DataError(
            f"MAUVE needs at least {REFUSED_BELOW} texts a side, and {what} has {n_texts}: with so few, a model that "
            f"is off scores like one that is not. Evaluate more examples (evaluation.limit); below {INDICATIVE_BELOW} "
            "the value is labelled indicative, and a claim needs 2,000."
        )


@contextmanager
def pinned_threads(elements: int | None = None) -> Iterator[None]:
    """BLAS and OpenMP on the cores that this process may use (SLURM_CPUS_PER_TASK, or its CPU affinity), and on one
    where there are few `elements` to compute on: threads then wait for each other longer than they work. The values are
    the same."""
    threadpoolctl = _import("threadpoolctl")
    with threadpoolctl.threadpool_limits(limits=1 if elements is not None and elements < FEW else cores()):
        yield


def cores() -> int:
    """The cores that this process may use."""
    asked = os.environ.get("SLURM_CPUS_PER_TASK", "")
    free = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    limit = os.environ.get("OMP_NUM_THREADS", "")
    return max(1, min([free, *(int(text) for text in (asked, limit) if text.isdigit() and int(text) > 0)]))


def _shares(p: ArrayLike, q: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    sides = [np.asarray(side, dtype=np.float64) for side in (p, q)]
    if sides[0].ndim != 1 or sides[0].shape != sides[1].shape or not sides[0].size:
        raise DataError(
            f"The histograms have the shapes {sides[0].shape} and {sides[1].shape}; both must count the same buckets."
        )
    for name, side in zip(("p", "q"), sides, strict=True):
        if not np.isfinite(side).all() or (side < 0).any() or not side.sum() > 0:
            raise DataError(f"Histogram {name} must hold finite numbers of at least 0 and some text, got {side}.")
    return sides[0] / sides[0].sum(), sides[1] / sides[1].sum()


def _kl(p: NDArray[np.float64], r: NDArray[np.float64]) -> float:
    """KL(p | r) in nats, where r > 0 wherever p > 0; never below 0."""
    seen = p > 0
    return max(0.0, float(np.sum(p[seen] * np.log(p[seen] / r[seen]))))


def _area(x: NDArray[np.float64], y: NDArray[np.float64]) -> float:
    """Trapezoids under y over x; points of equal x stay in their order."""
    order = np.argsort(x, kind="stable")
    return float(np.trapezoid(y[order], x[order]))


def _check_features(human: NDArray[Any], model: NDArray[Any], count: int) -> None:
    if human.ndim != 2 or model.ndim != 2 or human.shape[1] != model.shape[1]:
        raise DataError(f"Features must be (texts, features) with equal features, got {human.shape}, {model.shape}.")
    for name, side in (("human", human), ("model's", model)):
        if bad := int((~np.isfinite(side).all(axis=1)).sum()):
            raise DataError(
                f"{bad} of the {len(side)} {name} texts have NaN or infinite features: use a featurizer in float32."
            )
    total = len(human) + len(model)
    if not 2 <= count <= total:
        raise DataError(f"{count} buckets cannot be made of {total} texts: there must be 2 to {total} of them.")


def check_installed() -> None:
    """Raise `ConfigError` where a package of the extra `lossbench[mauve]` is missing."""
    _packages()
    _import("threadpoolctl")
    _mauve_text()


def _packages() -> tuple[Any, Any, Any]:
    return _import("faiss"), _import("sklearn.decomposition"), _import("sklearn.preprocessing")


def _mauve_text() -> Any:
    return _import("mauve").compute_mauve


def _import(module: str) -> Any:
    import importlib

    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ConfigError(
            f"MAUVE needs the packages of an extra, and {error.name or module} is not installed: "
            "pip install 'lossbench[mauve]', or leave the metric mauve out."
        ) from error
