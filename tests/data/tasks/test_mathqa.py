from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lossbench.data.example import Example
from lossbench.data.source_task import LeftOut
from lossbench.data.sources import Row
from lossbench.data.tasks.mathqa import decimal, seed_number
from lossbench.errors import DataError
from lossbench.evaluation import answers
from tests.data import golden
from tests.real_data import real_data


@pytest.mark.parametrize("case", golden.load("prompts")["math_qa"], ids=lambda case: case["doc"]["Problem"])
def test_fixed_targets_hold_the_exact_number_of_the_right_option(case: dict):
    found = golden.source_task("dataset=mathqa").example(Row("test-0", "line 1", case["doc"]))
    number = case["lossbench"]["gold_number"]
    if number is None:
        assert isinstance(found, LeftOut)
        return
    assert isinstance(found, Example)
    assert answers.extract(found.target) == number
    assert answers.exact_match(found.target, found.answer)


@pytest.mark.parametrize("case", golden.load("prompts")["math_qa"], ids=lambda case: case["doc"]["Problem"])
def test_fixed_choices_are_the_texts_behind_the_letters(case: dict):
    task = golden.source_task("dataset=mathqa", "dataset.prompt=lm_eval")
    found = task.example(Row("test-0", "line 1", case["doc"]))
    assert isinstance(found, Example)
    assert list(found.choices) == case["lossbench"]["options"]
    assert found.choices[found.gold_choice] == case["lossbench"]["gold_text"]


def test_a_formula_without_a_closing_bar_loses_its_last_step_only_under_seed():
    doc = golden.load("prompts")["math_qa"][-1]["doc"]
    fixed = golden.source_task("dataset=mathqa").example(Row("test-0", "line 1", doc))
    seed = golden.example("math_qa", doc)
    assert isinstance(fixed, Example) and isinstance(seed, Example)
    assert fixed.target == "<<add(n0,n1)>> <<divide(#0,n2)>> #### 2"
    assert seed.target == "<<add(n0,n1)>> #### 2.0"


@given(st.fractions(max_denominator=10**6))
def test_a_decimal_reads_back_as_the_same_number_and_has_no_exponent(value: Fraction):
    text = decimal(value)
    assert "e" not in text
    assert Fraction(text) == value


@pytest.mark.parametrize(("value", "text"), [("1/8", "0.125"), ("-1/2", "-0.5"), ("1/3", "1/3"), ("1500", "1500")])
def test_decimals_are_written_plainly(value: str, text: str):
    assert decimal(Fraction(value)) == text


def test_the_seeds_number_is_cut_at_commas():
    assert seed_number("a ) 1 , b ) 1,001 , c ) 3", 1) == "1.0"
    assert seed_number("a ) 0.00001 , b ) 2", 0) == "1e-05"
    assert seed_number("a ) none", 3) is None


def test_a_letter_that_is_no_option_is_refused():
    row = Row("test-0", "test.jsonl, line 7", {"Problem": "p", "options": "a ) 1 , b ) 2", "correct": "z"})
    with pytest.raises(DataError, match=r"test\.jsonl, line 7: the field 'correct' must be one of a, b, c, d, e"):
        golden.source_task("dataset=mathqa").example(row)


def test_real_rows_without_a_number_are_counted_and_the_rest_match_themselves():
    task = golden.source_task("dataset=mathqa", f"dataset.path={real_data('datasets/mathqa')}")
    test = task.examples("test")
    assert len(test) + task.notes.counts["test_left_out"] == 2985
    assert all(answers.exact_match(example.target, example.answer) for example in test)
    assert any("choice-only" in sentence for sentence in task.notes.sentences)
    assert len(task.examples("train")) > 3000
    assert any("no train split" in sentence for sentence in task.notes.sentences)


def test_every_real_row_has_five_choices():
    path = real_data("datasets/mathqa")
    task = golden.source_task("dataset=mathqa", f"dataset.path={path}", "dataset.prompt=lm_eval")
    test = task.examples("test")
    assert len(test) == 2985
    assert {len(example.choices) for example in test} == {5}
