from __future__ import annotations

import json
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lossbench.errors import ConfigError
from lossbench.evaluation import answers
from tests.evaluation import golden
from tests.real_data import real_data

EXTRACTION = golden.load("extraction")["cases"]
PAIRS = golden.load("exact_match")["cases"]
SEED_PAIRS = [
    case for case in golden.load("seed_metrics")["gsm"] if "accuracy" in case["metrics"]
]  # others crash there
NUMBER_RULES = [rule for rule in answers.RULES if rule != "letter"]


@pytest.mark.parametrize("case", EXTRACTION, ids=lambda case: case["id"])
def test_extraction_agrees_with_the_references(case: dict) -> None:
    text = case["text"]
    assert answers.extract(text) == case["lossbench"]["extract"]
    assert (answers.extract(text, "gsm8k_strict") or "[invalid]") == case["lm_eval"]["gsm8k/strict-match"]
    assert (answers.extract(text, "gsm8k_flexible") or "[invalid]") == case["lm_eval"]["gsm8k/flexible-extract"]
    assert (answers.extract(text, "openai") or "[invalid]") == case["openai_extract_answer"]
    assert answers.extract(text, "seed") == case["seed_gsm"]["group"]


@pytest.mark.parametrize("case", PAIRS, ids=lambda case: f"{case['prediction']!r} for {case['gold']!r}")
def test_exact_match_agrees_with_the_references(case: dict) -> None:
    pair = case["prediction"], case["gold"]
    assert answers.exact_match(*pair) is case["lossbench_em"]
    assert answers.exact_match(*pair, rule="gsm8k_strict") is (case["lm_eval_gsm8k"]["strict-match"] == 1)
    assert answers.exact_match(*pair, rule="gsm8k_flexible") is (case["lm_eval_gsm8k"]["flexible-extract"] == 1)
    # None: the reference asserts that the gold text has an answer, and stops.
    assert answers.exact_match(*pair, rule="openai") is bool(case["openai_is_correct"])
    # EXC: the reference's float() raises on the comma; a crash is counted as a wrong answer.
    assert answers.exact_match(*pair, rule="seed") is (case["seed_accuracy"] == 1)


@pytest.mark.parametrize("case", SEED_PAIRS, ids=lambda case: case["prediction"])
def test_seed_rule_agrees_with_the_seed_repository(case: dict) -> None:
    assert answers.exact_match(case["prediction"], case["label"], "seed") is (case["metrics"]["accuracy"] == 1)


@pytest.mark.parametrize("rule", answers.RULES)
@given(text=st.text(st.sampled_from("0123456789,.$#-+/%eE <>()\\\n½²−１A")) | st.text())
def test_extraction_never_raises(rule: str, text: str) -> None:
    found = answers.extract(text, rule)
    assert found is None or isinstance(found, str)
    assert answers.exact_match(text, text, rule) in (True, False)


@pytest.mark.parametrize(
    "text", ["#### " + "7" * 5000, "7" * 5000, "#### 1e999999999", "#### 1e-999999999", "1/" + "3" * 9999]
)
def test_absurdly_long_numbers_are_no_answers(text: str) -> None:
    assert answers.extract(text) is None
    assert not answers.exact_match(text, "#### 7")


@given(value=st.fractions(max_denominator=10**6))
def test_an_extracted_answer_extracts_to_itself(value: Fraction) -> None:
    assert answers.extract(f"#### {value}") == str(value)
    assert answers.exact_match(f"so it is {value}", f"#### {value}")


@given(
    value=st.integers(-(10**15), 10**15),
    spelling=st.sampled_from(["{:,}", "${:,}", "{}.00", "{}%", "{:,} apples", "{}."]),
)
def test_spellings_of_one_number_are_one_answer(value: int, spelling: str) -> None:
    assert answers.extract(f"#### {spelling.format(value)}") == str(value)
    assert answers.extract(f"The answer is {spelling.format(value)}") == str(value)


@given(value=st.integers(0, 10**6), other=st.integers(0, 10**6), text=st.text("abc #123\n", max_size=30))
def test_what_follows_the_first_marked_number_changes_nothing(value: int, other: int, text: str) -> None:
    assert answers.extract(f"<<1+1=2>> #### {value}\n{text} #### {other}") == str(value)


@given(gold=st.integers(-(10**9), 10**9), sign=st.sampled_from([1, -1]))
def test_tolerance_is_one_millionth_of_the_gold_value(gold: int, sign: int) -> None:
    allowed = Fraction(max(1, abs(gold)), 10**6)
    inside, outside = gold + sign * allowed, gold + sign * allowed * Fraction(1001, 1000)
    assert answers.exact_match(f"#### {inside}", f"#### {gold}")
    assert not answers.exact_match(f"#### {outside}", f"#### {gold}")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("#### 10 cm²", "10"),
        ("an area of 10 cm²", "10"),
        ("#### 9½", "19/2"),
        ("#### - 5", "-5"),
        ("#### rs . 1,500", "1500"),
        ("#### 5/0", "5"),
        ("he keeps 12 (that is 7-3)", "3"),
        ("f(2)-3", "3"),
        ("x = -3", "-3"),
        ("3*4=<<3*4=12>>12", "12"),
        ("<<3*4=12>>", None),
    ],
)
def test_reading_by_the_grammar(text: str, expected: str | None) -> None:
    assert answers.extract(text) == expected


def test_unknown_rule_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"no answer rule 'gsm8k_strickt'.*gsm8k_strict"):
        answers.extract("#### 1", "gsm8k_strickt")


def test_shipped_solutions_of_gsm8k_have_their_published_labels() -> None:
    lines = (real_data("datasets/gsm8k") / "example_model_solutions.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    for name, expected in golden.load("gsm8k_shipped_solutions_stats").items():
        right = [answers.exact_match(row[name]["solution"], row["ground_truth"]) for row in rows]
        assert right == [row[name]["is_correct"] for row in rows]
        assert len(right) == expected["n"]
        assert sum(right) / len(right) == pytest.approx(expected["shipped_is_correct"], abs=1e-12)
        flexible = sum(
            answers.exact_match(r[name]["solution"], r["ground_truth"].replace("A:", "####"), "gsm8k_flexible")
            for r in rows
        )
        assert flexible / len(rows) == pytest.approx(expected["lm_eval_flexible"], abs=1e-12)


def test_real_gsm8k_golds_match_themselves() -> None:
    lines = (real_data("datasets/gsm8k") / "test.jsonl").read_text(encoding="utf-8").splitlines()
    golds = [json.loads(line)["answer"] for line in lines]
    right = {rule: sum(answers.exact_match(gold, gold, rule) for gold in golds) for rule in NUMBER_RULES}
    # The seed's number has neither commas (14 answers) nor a sign (2 answers).
    assert right == dict.fromkeys(NUMBER_RULES, 1319) | {"seed": 1303}
