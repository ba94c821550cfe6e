from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lossbench.errors import DataError
from lossbench.evaluation import text_statistics as stats
from tests.evaluation import golden

GOLDEN = golden.load("text_stats")
word_lists = st.lists(st.sampled_from("abcd"), max_size=15)


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_repetition_agrees_with_the_emo_repository(n: int) -> None:
    golden_part = GOLDEN["repetition"]
    found = [stats.rep_n(text.split(" "), n) for text in golden_part["texts"]]
    assert found == pytest.approx(golden_part["emo_repetitiveness_split_on_single_space"][str(n)], abs=1e-12)


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_distinct_ngrams_of_a_corpus(n: int) -> None:
    golden_part = GOLDEN["repetition"]
    found = stats.distinct_n([text.split() for text in golden_part["texts"]], n)
    assert found == pytest.approx(golden_part["distinct_n_corpus_whitespace"][str(n)], abs=1e-12)


def test_self_bleu_agrees_with_sacrebleu() -> None:
    golden_part = GOLDEN["self_bleu"]
    found = stats.self_bleu([stats.tokenize_13a(text) for text in golden_part["texts"]])
    assert found == pytest.approx(golden_part["order4_tok13a_exp"], abs=1e-9)


WORDS = st.lists(st.sampled_from(["the", "a", "cat,", "dog.", "1,200", "3.5", "5-3", "(mat)", "it's", "&", "$5"]))


@given(st.lists(WORDS.map(" ".join), min_size=2, max_size=6))
def test_self_bleu_is_sentence_bleu_against_the_others(texts: list[str]) -> None:
    sacrebleu = pytest.importorskip("sacrebleu")
    found = stats.self_bleu([stats.tokenize_13a(text) for text in texts])
    bleu = sacrebleu.metrics.BLEU(smooth_method="exp", effective_order=False)
    for number, text in enumerate(texts):
        others = [other for place, other in enumerate(texts) if place != number]
        assert found[number] == pytest.approx(bleu.sentence_score(text, others).score, abs=1e-9)


@pytest.mark.parametrize("case", GOLDEN["rouge_f"], ids=lambda case: f"{case['ref']} | {case['pred']}")
def test_rouge_agrees_with_rouge_score(case: dict) -> None:
    pair = case["ref"], case["pred"]
    assert stats.rouge_n(*pair, 1) == pytest.approx(case["rouge1"], abs=1e-12)
    assert stats.rouge_n(*pair, 2) == pytest.approx(case["rouge2"], abs=1e-12)
    assert stats.rouge_l(*pair) == pytest.approx(case["rougeL"], abs=1e-12)


def test_rouge_by_hand() -> None:
    pair = "The cat sat on the mat.", "the cat lay on a mat"
    assert stats.rouge_n(*pair, 1) == pytest.approx(4 / 6)
    assert stats.rouge_n(*pair, 2) == pytest.approx(1 / 5)
    assert stats.rouge_l(*pair) == pytest.approx(4 / 6)
    assert stats.rouge_l("a b c d", "d c b a") == pytest.approx(1 / 4)


def test_zipf_agrees_with_least_squares() -> None:
    ids = GOLDEN["zipf"]["token_ids"]
    expected = GOLDEN["zipf"]["slope_least_squares_loglog_all_ranks"]
    assert stats.zipf_coefficient(ids) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("exponent", [0.5, 1.0, 1.5])
def test_zipf_finds_the_exponent_of_a_power_law(exponent: float) -> None:
    counts = [round(10**5 * rank**-exponent) for rank in range(1, 9)]
    words = [word for word, count in enumerate(counts) for _ in range(count)]
    assert stats.zipf_coefficient(words) == pytest.approx(exponent, abs=1e-3)
    assert stats.zipf_coefficient(words, ranks=3) == pytest.approx(exponent, abs=1e-3)


@given(word_lists, st.integers(1, 4))
def test_repetition_is_a_share_and_doubling_a_text_raises_it(words: list[str], n: int) -> None:
    share = stats.rep_n(words, n)
    assert 0 <= share < 1
    if len(words) >= n:
        assert stats.rep_n(words + words, n) >= share
    assert 0 <= stats.diversity(words) <= 1


def test_a_loop_is_not_diverse_and_distinct_words_are() -> None:
    assert stats.diversity("one two three four five six".split()) == 1
    assert stats.diversity(["go"] * 100) < 1e-5
    assert stats.rep_n([], 4) == 0
    assert math.isnan(stats.distinct_n([[]], 1))
    assert math.isnan(stats.zipf_coefficient(["same"] * 5))


def test_equal_texts_have_a_self_bleu_of_100() -> None:
    assert stats.self_bleu(["a b c d e".split()] * 3) == pytest.approx([100, 100, 100])


def test_self_bleu_needs_two_texts() -> None:
    with pytest.raises(DataError, match="compares 2 to 500 texts with each other, got 1"):
        stats.self_bleu([["alone"]])
