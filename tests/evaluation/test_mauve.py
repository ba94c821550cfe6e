from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lossbench.errors import ConfigError, DataError
from lossbench.evaluation import mauve
from tests.evaluation import golden

HISTOGRAMS = golden.load("mauve_from_hist")["cases"]
END_TO_END = golden.load("mauve")["cases"]
# PCA on a random part of the texts is no option here; that case is tested from its histograms on.
CLUSTERED = [case for case in END_TO_END if "pca_max_data" not in case["params"]]
FEATURES = dict(np.load(golden.FOLDER / "mauve_features.npz"))
FLOOR = 0.0040720962619612555  # disjoint supports at c = 5 and 25 points
counts = st.lists(st.integers(0, 50), min_size=1, max_size=30).filter(any)


@pytest.mark.parametrize("case", HISTOGRAMS, ids=lambda case: f"{len(case['p_hist'])} buckets")
def test_histograms_give_the_golden_value(case: dict) -> None:
    settings = (case["scaling_factor"], case["discretization"])
    found = mauve.from_histograms(case["p_hist"], case["q_hist"], *settings)
    assert found == pytest.approx(case["lossbench"], rel=0, abs=1e-12)
    integral = mauve.frontier_integral(case["p_hist"], case["q_hist"])
    assert integral == pytest.approx(case["frontier_integral"], abs=1e-12)


@pytest.mark.parametrize("case", CLUSTERED, ids=lambda case: case["name"])
def test_features_give_the_golden_histograms_and_value(case: dict) -> None:
    pytest.importorskip("faiss")
    given, expected = case["params"], case["result"]
    human, model = mauve.buckets(
        FEATURES[case["p"]],
        FEATURES[case["q"]],
        expected["num_buckets"],
        given.get("seed", 25),
        explained_variance=given.get("kmeans_explained_var", 0.9),
        redo=given.get("kmeans_num_redo", 5),
        iterations=given.get("kmeans_max_iter", 500),
    )
    p, q = (mauve.counts(labels, expected["num_buckets"]) for labels in (human, model))
    assert (p / p.sum()).tolist() == expected["p_hist"]
    assert (q / q.sum()).tolist() == expected["q_hist"]
    settings = (given.get("mauve_scaling_factor", 5), given.get("divergence_curve_discretization_size", 25))
    found = mauve.from_counts(p, q, *settings)
    assert found.mauve == pytest.approx(case["lossbench_from_hist"], rel=0, abs=1e-12)
    assert found.mauve_star == pytest.approx(expected["mauve_star"], abs=1e-9)
    assert found.frontier_integral == pytest.approx(expected["frontier_integral"], abs=1e-12)
    assert found.frontier_integral_star == pytest.approx(expected["frontier_integral_star"], abs=1e-12)


@pytest.mark.parametrize("case", END_TO_END, ids=lambda case: case["name"])
def test_histograms_of_the_reference_give_its_value(case: dict) -> None:
    given, expected = case["params"], case["result"]
    settings = (given.get("mauve_scaling_factor", 5), given.get("divergence_curve_discretization_size", 25))
    found = mauve.from_histograms(expected["p_hist"], expected["q_hist"], *settings)
    assert found == pytest.approx(case["lossbench_from_hist"], rel=0, abs=1e-12)


def test_mauve_text_itself_agrees() -> None:
    pytest.importorskip("mauve")
    human, model = FEATURES["shift_p"], FEATURES["shift_q"]
    p, q = (mauve.counts(labels, 12) for labels in mauve.buckets(human, model, 12, 3))
    found = mauve.from_counts(p, q)
    mauve.check_against_mauve_text(human, model, 12, 3, found)
    with pytest.raises(DataError, match="is not what mauve-text makes of the same features"):
        mauve.check_against_mauve_text(human, model, 12, 4, found)


@given(counts, st.sampled_from([1.0, 5.0, 10.0]))
def test_equal_histograms_give_exactly_one(p: list[int], scaling_factor: float) -> None:
    assert mauve.from_histograms(p, p, scaling_factor) == 1.0
    assert mauve.frontier_integral(p, p) == pytest.approx(0, abs=1e-12)


@given(st.integers(1, 58))
def test_uniform_histograms_have_no_tie_defect(size: int) -> None:
    assert mauve.from_histograms([1] * size, [1] * size, 5.0) == 1.0


@given(st.integers(1, 20), st.integers(1, 20))
def test_disjoint_histograms_give_the_floor(left: int, right: int) -> None:
    p, q = [1] * left + [0] * right, [0] * left + [1] * right
    assert mauve.from_histograms(p, q) == pytest.approx(FLOOR, abs=1e-12)
    assert mauve.frontier_integral(p, q) == pytest.approx(1)


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), min_size=2, max_size=20), st.randoms())
def test_neither_order_nor_sides_nor_empty_buckets_matter(pairs: list[tuple[int, int]], random: Any) -> None:
    p, q = (np.array(side) for side in zip(*pairs, strict=True))
    if not p.any() or not q.any():
        return
    value = mauve.from_histograms(p, q)
    assert FLOOR - 1e-12 <= value <= 1 + 1e-12
    order = random.sample(range(len(p)), len(p))
    assert mauve.from_histograms(p[order], q[order]) == pytest.approx(value, abs=1e-9)
    assert mauve.from_histograms(q, p) == pytest.approx(value, abs=1e-9)
    assert mauve.from_histograms([*p, 0], [*q, 0]) == pytest.approx(value, abs=1e-12)
    assert mauve.from_histograms(3 * p, q) == pytest.approx(value, abs=1e-9)


@pytest.mark.parametrize(
    ("p", "q", "sentence"),
    [
        ([1, 2], [1, 2, 3], "must count the same buckets"),
        ([], [], "must count the same buckets"),
        ([0, 0], [1, 1], "Histogram p must hold finite numbers"),
        ([1, 1], [1, -1], "Histogram q must hold"),
        ([1, float("nan")], [1, 1], "Histogram p must hold"),
    ],
)
def test_what_is_no_histogram_is_refused(p: list[float], q: list[float], sentence: str) -> None:
    with pytest.raises(DataError, match=sentence):
        mauve.from_histograms(p, q)


def test_impossible_settings_are_refused() -> None:
    with pytest.raises(ConfigError, match="scaling factor above 0"):
        mauve.from_histograms([1], [1], scaling_factor=0)
    with pytest.raises(ConfigError, match="at least 2 points"):
        mauve.from_histograms([1], [1], discretization=1)


def test_degenerate_features_are_answered_or_refused_by_name() -> None:
    pytest.importorskip("faiss")
    same = np.ones((30, 4), dtype=np.float32)
    human, model = mauve.buckets(same, same, 3, 0)
    assert mauve.from_histograms(mauve.counts(human, 3), mauve.counts(model, 3)) == 1.0
    broken = same.copy()
    broken[7] = np.nan
    with pytest.raises(DataError, match="1 of the 30 model's texts have NaN or infinite features"):
        mauve.buckets(same, broken, 3, 0)
    with pytest.raises(DataError, match="61 buckets cannot be made of 60 texts"):
        mauve.buckets(same, same, 61, 0)
    with pytest.raises(DataError, match="equal features"):
        mauve.buckets(same, same[:, :3], 3, 0)


def test_threads_are_pinned_to_the_cores_at_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    threadpoolctl = pytest.importorskip("threadpoolctl")
    monkeypatch.setenv("SLURM_CPUS_PER_TASK", "1")
    assert mauve.cores() == 1
    with mauve.pinned_threads():
        assert {pool["num_threads"] for pool in threadpoolctl.threadpool_info()} <= {1}
    monkeypatch.setenv("SLURM_CPUS_PER_TASK", "10000")
    assert mauve.cores() < 10000
    monkeypatch.setattr(mauve, "cores", lambda: 2)
    with mauve.pinned_threads(mauve.FEW - 1):
        assert {pool["num_threads"] for pool in threadpoolctl.threadpool_info()} <= {1}


def test_too_few_texts_are_refused_with_a_sentence() -> None:
    mauve.check_number_of_texts(200, "this evaluation")
    with pytest.raises(DataError, match="at least 200 texts a side, and this evaluation has 199"):
        mauve.check_number_of_texts(199, "this evaluation")


def test_histograms_need_no_package_of_the_extra() -> None:
    code = (
        "import sys; from lossbench.evaluation import mauve; assert mauve.from_histograms([1, 2], [1, 2]) == 1.0; "
        "assert not {'mauve', 'faiss', 'sklearn', 'torch', 'scipy'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


@pytest.mark.parametrize("absent", ["faiss", "sklearn.decomposition", "threadpoolctl"])
def test_an_absent_package_is_said_with_what_to_install(absent: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("faiss")
    monkeypatch.setitem(sys.modules, absent, None)
    with pytest.raises(ConfigError, match=r"pip install 'lossbench\[mauve\]'"):
        mauve.buckets(FEATURES["shift_p"], FEATURES["shift_q"], 5, 0)
