from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lossbench.errors import ConfigError, DataError
from lossbench.evaluation import calibration
from tests.evaluation import golden

GOLDEN = golden.load("text_stats")
answers = st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1, max_size=80)


@pytest.mark.parametrize("case", GOLDEN["ece_binary"], ids=lambda case: f"{case['bins']} bins")
def test_binary_calibration_agrees_with_torchmetrics(case: dict) -> None:
    columns = case["confidence"], case["correct"]
    assert calibration.expected_calibration_error(*columns, case["bins"]) == pytest.approx(case["ece_l1"], abs=1e-9)
    assert calibration.maximum_calibration_error(*columns, case["bins"]) == pytest.approx(case["ece_max"], abs=1e-9)
    assert calibration.brier(*columns) == pytest.approx(case["brier"], abs=1e-12)


def test_calibration_of_the_most_probable_option_agrees_with_torchmetrics() -> None:
    case = GOLDEN["ece_multiclass"]
    confidence, correct = calibration.top_choice(case["probs"], case["labels"])
    found = calibration.expected_calibration_error(confidence, correct, case["bins"])
    assert found == pytest.approx(case["ece_l1"], abs=1e-6)  # torchmetrics computes in float32
    assert sum(correct) / len(correct) == pytest.approx(case["accuracy"])


@pytest.mark.parametrize("binning", ["equal_width", "adaptive"])
@given(found=answers, bins=st.integers(1, 20))
def test_every_answer_is_in_one_bin(binning: str, found: list[tuple[float, bool]], bins: int) -> None:
    confidence, correct = zip(*found, strict=True)
    table = calibration.reliability(confidence, correct, bins, binning)
    assert sum(row.count for row in table) == len(found)
    assert len(table) <= bins
    assert math.fsum(row.count * row.accuracy for row in table) == pytest.approx(sum(correct))
    assert all(row.low - 1e-12 <= row.confidence <= row.high + 1e-12 for row in table)
    ece = calibration.expected_calibration_error(confidence, correct, bins, binning)
    assert 0 <= ece <= calibration.maximum_calibration_error(confidence, correct, bins, binning) + 1e-12 <= 1 + 1e-9


@given(answers)
def test_one_bin_compares_the_two_means(found: list[tuple[float, bool]]) -> None:
    confidence, correct = zip(*found, strict=True)
    expected = abs(np.mean(confidence) - np.mean(correct))
    for binning in ("equal_width", "adaptive"):
        ece = calibration.expected_calibration_error(confidence, correct, 1, binning)  # type: ignore[arg-type]
        assert ece == pytest.approx(expected, abs=1e-12)


def test_adaptive_bins_hold_equal_numbers() -> None:
    table = calibration.reliability([0.9, 0.91, 0.92, 0.93, 0.94, 0.95], [1, 1, 0, 1, 0, 1], 3, "adaptive")
    assert [row.count for row in table] == [2, 2, 2]
    assert len(calibration.reliability([0.9, 0.91, 0.92, 0.93, 0.94, 0.95], [1, 1, 0, 1, 0, 1], 3)) == 1


def test_perfect_and_hopeless_confidence() -> None:
    assert calibration.expected_calibration_error([1, 1, 0], [1, 1, 0]) == 0
    assert calibration.brier([1, 1, 0], [1, 1, 0]) == 0
    assert calibration.negative_log_likelihood([1, 1, 0], [1, 1, 0]) == 0
    assert calibration.expected_calibration_error([1, 1], [0, 0]) == 1
    assert calibration.negative_log_likelihood([1, 0.5], [0, 1]) == math.inf


@given(answers)
def test_area_under_roc_is_the_chance_of_a_right_order(found: list[tuple[float, bool]]) -> None:
    right = [p for p, is_right in found if is_right]
    wrong = [p for p, is_right in found if not is_right]
    area = calibration.area_under_roc(*zip(*found, strict=True))
    if not right or not wrong:
        assert math.isnan(area)
        return
    wins = sum((a > b) + 0.5 * (a == b) for a in right for b in wrong)
    assert area == pytest.approx(wins / len(right) / len(wrong), abs=1e-12)


def test_probabilities_among_options() -> None:
    assert calibration.softmax([-1000.0, -1000.0]) == [0.5, 0.5]
    assert sum(calibration.softmax([-3.0, 2.0, 0.1])) == pytest.approx(1)
    assert calibration.multiclass_brier([[0.5, 0.5], [0.0, 1.0]], [0, 0]) == pytest.approx((0.5 + 2) / 2)


def test_what_is_no_probability_is_refused() -> None:
    with pytest.raises(DataError, match="probabilities between 0 and 1"):
        calibration.brier([1.2], [1])
    with pytest.raises(DataError, match="two columns of one length"):
        calibration.brier([0.2], [1, 0])
    with pytest.raises(ConfigError, match="at least one bin, got 0"):
        calibration.reliability([0.2], [1], 0)
