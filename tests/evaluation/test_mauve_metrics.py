from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lossbench.errors import DataError
from lossbench.evaluation import mauve
from lossbench.evaluation.mauve_metrics import best_temperature, difference, mauve_metrics, temperatures


def row(human: list[list[int]], model: list[list[int]], **more: Any) -> dict[str, Any]:
    shared = {"mauve_name": "gpt2-large", "mauve_buckets": 2, "mauve_clusterings": 1}
    return {"mauve_human": human, "mauve_model": model, **shared, **more}


def test_only_a_thousand_pairs_drop_the_label_indicative() -> None:
    pairs = [row([[n % 2]], [[n % 2]]) for n in range(1000)]
    assert mauve_metrics(pairs)["mauve[gpt2-large]"] == 1.0
    pairs[0] = row([[]], [[]])
    found = mauve_metrics(pairs)
    assert "mauve[gpt2-large]" not in found
    assert found["mauve_indicative[gpt2-large]/n"] == 999
    assert found["mauve_indicative[gpt2-large]/dropped"] == pytest.approx(0.001)


def test_below_200_texts_there_is_no_value() -> None:
    pairs = [row([[0]], [[0]]) for _ in range(199)]
    assert set(mauve_metrics(pairs)) == {"mauve_indicative[gpt2-large]/n", "mauve_indicative[gpt2-large]/dropped"}


def test_halves_are_read_from_even_and_odd_rows() -> None:
    pairs = [
        row([[0]], [[0]], mauve_half_buckets=2, mauve_ceiling=[[n // 2 % 2]], mauve_half=[[n % 2]]) for n in range(400)
    ]
    found = mauve_metrics(pairs)
    name = "mauve_indicative[gpt2-large]"
    assert found[f"{name}/ceiling"] == 1.0
    assert found[f"{name}/half"] == pytest.approx(0.0040720962619612555)


def test_columns_that_do_not_belong_together_are_refused() -> None:
    with pytest.raises(DataError, match="do not belong together"):
        mauve_metrics([row([[0], [0]], [[0]])])


def test_the_first_best_temperature_is_chosen_among_those_with_a_value() -> None:
    tuning = [
        row([[0]] * 3, [[n % 2], [0], [0] if n < 199 else []], mauve_temperatures=[0.8, 1.0, 1.2]) for n in range(200)
    ]
    for example in tuning[199:]:
        example["mauve_human"] = [[0], [0], []]
    tried = temperatures(tuning)
    assert list(tried) == [0.8, 1.0]
    assert best_temperature(tuning) == 1.0
    found = mauve_metrics(tuning[:], tuning)
    assert found["mauve_indicative[gpt2-large]/tuned_temperature"] == 1.0


def test_a_difference_is_that_of_the_scores_and_its_interval_covers_it() -> None:
    random = np.random.default_rng(1)
    human = random.integers(4, size=600)
    near, far = human.copy(), np.minimum(human, 1)
    near[:30] = 0
    one, other = (
        [{**row([[int(h)]], [[int(m)]]), "mauve_buckets": 4} for h, m in zip(human, model, strict=True)]
        for model in (near, far)
    )
    found = difference(one, other, draws=200)
    scores = [mauve.from_histograms(np.bincount(human), np.bincount(model, minlength=4)) for model in (near, far)]
    assert found.value == pytest.approx(scores[0] - scores[1])
    assert 0 < found.low < found.value < found.high < 1
    nothing = difference(one, one, draws=20)
    assert (nothing.value, nothing.low, nothing.high) == (0, 0, 0)
