from __future__ import annotations

import math

import pytest

from lossbench.evaluation.metrics import aggregate

ROWS = [
    {
        "em": True, "em_strict": True, "em_flexible": True, "em_seed": False, "error_class": "ok", "stop_reason": "eos",
        "n_new_tokens": 5, "nll_sum": 2.0, "n_tokens": 4, "eos_nll": 0.5, "entropy_sum": 1.0, "n_correct_tokens": 3,
        "n_bytes": 8,
    },
    {
        "em": False, "em_strict": False, "em_flexible": True, "em_seed": False, "error_class": "runaway",
        "stop_reason": "length", "n_new_tokens": 10, "nll_sum": 16.0, "n_tokens": 8, "eos_nll": 1.5, "entropy_sum": 8.0,
        "n_correct_tokens": 0, "n_bytes": 24,
    },
]  # fmt: skip


def test_aggregates_are_totals_over_totals() -> None:
    found = aggregate(ROWS, "test")
    expected = {
        "data/n_test": 2,
        "test/em": 0.5,
        "test/em_strict": 0.5,
        "test/em_flexible": 1,
        "test/em_seed": 0,
        "test/error/runaway": 0.5,
        "test/error/no_marker": 0,
        "test/stops/eos": 0.5,
        "test/stops/length": 0.5,
        "test/stops/stop_string": 0,
        "test/new_tokens": 7.5,
        "test/nll": 18 / 12,
        "test/ppl": math.exp(18 / 12),
        "test/eos_nll": 1,
        "test/entropy": 9 / 12,
        "test/token_accuracy": 3 / 12,
        "test/bits_per_byte": 16 / math.log(2) / 32,
    }
    assert {name: found[name] for name in expected} == pytest.approx(expected)


def test_error_classes_and_right_answers_add_up_to_all() -> None:
    found = aggregate(ROWS, "test")
    errors = sum(value for name, value in found.items() if name.startswith("test/error/"))
    assert found["test/em"] + errors == pytest.approx(1)


def test_only_columns_that_every_row_fills_give_a_metric() -> None:
    full = {"nll_sum": 1.0, "n_tokens": 2, "eos_nll": 0.5, "entropy_sum": 0.5, "n_correct_tokens": 1, "n_bytes": 3}
    always = {"data/n_val", "val/nll", "val/ppl", "val/entropy", "val/token_accuracy"}
    assert set(aggregate([full], "validation")) == always | {"val/eos_nll", "val/bits_per_byte", "val/byte_ppl"}
    for missing in (None, float("nan")):
        assert set(aggregate([full, full | {"eos_nll": missing, "n_bytes": missing}], "validation")) == always


def test_a_diverged_model_shows_nan_instead_of_losing_its_metric() -> None:
    found = aggregate([ROWS[0], ROWS[1] | {"nll_sum": float("nan")}], "test")
    assert math.isnan(found["test/nll"])
    assert math.isnan(found["test/ppl"])


def test_the_order_of_the_rows_changes_nothing() -> None:
    assert aggregate(ROWS[::-1], "test") == aggregate(ROWS, "test")


def test_choices_are_averaged_and_their_calibration_is_that_of_the_softmax() -> None:
    rows = [
        {"gold_choice": 0, "choice_logprobs": [math.log(0.03), math.log(0.01)], "acc": True, "acc_norm": False},
        {"gold_choice": 0, "choice_logprobs": [math.log(0.01), math.log(0.01)], "acc": True, "acc_norm": True},
    ]
    found = aggregate(rows, "test")
    assert found["test/acc"] == 1
    assert found["test/acc_norm"] == 0.5
    assert found["test/choices/nll"] == pytest.approx(-(math.log(0.75) + math.log(0.5)) / 2)
    assert found["test/choices/brier"] == pytest.approx((2 * 0.25**2 + 2 * 0.5**2) / 2)
    assert found["test/choices/ece"] == pytest.approx((0.25 + 0.5) / 2)


def test_a_loop_shows_in_the_texts_and_a_crash_of_the_seed_metrics_is_counted() -> None:
    rows = [
        {"completion": "go " * 20, "gold_steps": "<<1+1=2>>"},
        {"completion": "<<1+1=2>> done #### 1,250", "gold_steps": "<<1+1=2>> #### 1250"},
    ]
    found = aggregate(rows, "test")
    assert found["test/text/rep_4"] == pytest.approx((1 - 1 / 17) / 2)
    assert found["test/text/words"] == pytest.approx((20 + 4) / 2)
    assert found["test/steps/iou"] == 0.5
    assert found["test/seed/crashed"] == 0.5
    assert found["test/seed/missing_steps"] == 1.0  # of the one that did not crash


def test_texts_without_steps_in_the_gold_solutions_have_no_step_metrics() -> None:
    found = aggregate([{"completion": "<<1+1=2>>", "gold_steps": ""}], "test")
    assert not [name for name in found if "/steps/" in name or "/seed/" in name]


def test_words_and_bytes_divide_the_likelihood_without_eos() -> None:
    row = {"nll_sum": 5.0, "n_tokens": 4, "entropy_sum": 1.0, "n_correct_tokens": 1, "eos_nll": 1.0}
    found = aggregate([{**row, "n_bytes": 8, "n_words": 2}], "test")
    assert found["test/byte_ppl"] == pytest.approx(math.exp(4 / 8))
    assert found["test/word_ppl"] == pytest.approx(math.exp(4 / 2))
    assert found["test/bits_per_byte"] == pytest.approx(4 / 8 / math.log(2))
