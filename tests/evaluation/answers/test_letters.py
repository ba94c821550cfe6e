from __future__ import annotations

import pytest

from lossbench.evaluation import answers
from lossbench.evaluation.answers.letters import letter
from tests.evaluation import golden


@pytest.mark.parametrize("case", golden.load("letters")["cases"], ids=lambda case: repr(case["completion"]))
def test_letters_agree_with_the_reference(case: dict) -> None:
    assert answers.letter(case["completion"]) == case["letter"]
    assert answers.extract(case["completion"], "letter") == case["letter"]


@pytest.mark.parametrize(
    ("completion", "expected"),
    [
        ("A, B, and C", "A"),
        ("A.m. it rains", None),
        ("So the answer is: B)", "B"),
        ("C\nQuestion: D", "C"),
        ("E ", "E"),
    ],
)
def test_punctuation_ends_a_letter_and_words_do_not(completion: str, expected: str | None) -> None:
    assert answers.letter(completion) == expected


def test_letters_are_those_of_the_question() -> None:
    assert letter("E", letters="ABCD") is None
    assert letter("F", letters="ABCDEF") == "F"
