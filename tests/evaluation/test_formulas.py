from __future__ import annotations

import ast
import json
import math
import re
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lossbench.evaluation import formulas
from lossbench.evaluation.text_statistics import rouge_n
from tests.evaluation import golden
from tests.real_data import real_data

GOLDEN = golden.load("seed_metrics")
numbers = st.integers(0, 99).map(str)
expressions = st.recursive(
    numbers, lambda inner: st.tuples(inner, st.sampled_from("+-*/"), inner).map(lambda t: f"({t[0]}{t[1]}{t[2]})")
)
texts = st.lists(
    st.one_of(expressions.map(lambda e: f"<<{e}=7>>"), st.text(max_size=12).map(lambda t: f"<<{t}>>")), max_size=5
).map(" ".join)


@pytest.mark.parametrize("case", GOLDEN["gsm"], ids=lambda case: f"{case['prediction']} | {case['label']}")
def test_numbers_of_the_seed_repository(case: dict) -> None:
    expected = case["metrics"]
    if "EXC" in expected:
        with pytest.raises(ValueError) as error:
            formulas.seed_metrics(case["prediction"], case["label"])
        assert f"ValueError: {error.value}" == expected["EXC"]
        return
    found = formulas.seed_metrics(case["prediction"], case["label"])
    assert found.keys() == expected.keys()
    assert found == pytest.approx(expected, abs=1e-12)


def test_means_of_the_seed_repository() -> None:
    valid = [case for case in GOLDEN["gsm"] if "EXC" not in case["metrics"]]
    found = [formulas.seed_metrics(case["prediction"], case["label"]) for case in valid]
    expected = GOLDEN["gsm_mean_over_valid_pairs"]
    assert len(found) == expected["n"]
    means = {name: math.fsum(shares[name] for shares in found) / len(found) for name in found[0]}
    assert means == pytest.approx(expected["metrics"], abs=1e-12)


@pytest.mark.parametrize("case", GOLDEN["qa"], ids=lambda case: case["prediction"])
def test_multiple_choice_of_the_seed_repository(case: dict) -> None:
    pair = case["prediction"], case["label"]
    assert formulas.seed_letter_accuracy(*pair) == case["metrics"]["accuracy"]
    assert rouge_n(pair[1], pair[0], 1) == pytest.approx(case["metrics"]["R1"], abs=1e-12)


def test_a_step_of_brackets_alone_stops_the_seed_metrics_and_not_ours() -> None:
    with pytest.raises(IndexError):
        formulas.seed_metrics("<<()>> #### 1", "<<1+1=2>> #### 2")
    assert formulas.step_metrics("<<()>> #### 1", "<<1+1=2>> #### 2")["precision"] == 0


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ("3*4=12", "4*3=12", True),
        ("3*4=12", "3 * 4 = 12", True),
        ("1,200+600=1,800", "1200+600=1800", True),
        ("50*.2=10", "50*0.2=10", True),
        ("1+(2+3)=6", "(3+1)+2=6", True),
        ("50%*80=40", "80*(50/100)=40", True),
        ("multiply(n0,n1)", "multiply(n1,n0)", True),
        ("divide(n0,n1)", "divide(n1,n0)", False),
        ("12/3=4", "3/12=0.25", False),
        ("8-5=3", "5-8=-3", False),
        ("2*3+4=10", "2*(3+4)=14", False),
        ("2+3=5", "2*3=6", False),
        ("-5+8=3", "8+-5=3", True),
    ],
)
def test_steps_are_compared_by_what_they_say(one: str, other: str, is_same: bool) -> None:
    assert (formulas.parse(one).key == formulas.parse(other).key) == is_same
    assert formulas.step_metrics(f"<<{one}>>", f"<<{other}>>")["iou"] == is_same


def test_equal_formulas_in_other_words_are_whole_matches_where_the_seed_gives_half() -> None:
    pair = "<<4*3=12>> #### 12", "<<3*4=12>> #### 12"
    assert formulas.seed_metrics(*pair)["real iou"] == 0.5
    assert formulas.step_metrics(*pair)["iou"] == 1


def test_wrong_operators_are_no_inverted_operands() -> None:
    pair = "<<3+4=7>> #### 7", "<<3*4=12>> #### 12"
    assert formulas.seed_metrics(*pair)["inverted operands"] == 1
    found = formulas.step_metrics(*pair)
    assert (found["wrong_operators"], found["inverted_operands"]) == (1, 0)
    found = formulas.step_metrics("<<12/3=4>>", "<<3/12=0.25>>")
    assert (found["wrong_operators"], found["inverted_operands"]) == (0, 1)


def test_every_share_of_a_solution_by_hand() -> None:
    found = formulas.step_metrics("<<4*3=12>> <<12*1=12>> <<3*4=12>> <<9-1=7>>", "<<3*4=12>> <<12+1=13>>")
    assert found == {
        "iou": 1 / 4,
        "dice": 2 / 5,
        "overlap": 1 / 2,
        "precision": 1 / 3,
        "recall": 1 / 2,
        "missing": 1 / 2,
        "extra": 1.0,
        "wrong_operators": 1 / 2,
        "inverted_operands": 0.0,
        "repetitions": 1 / 4,
        "right_arithmetic": 3 / 4,
    }


def test_a_solution_without_steps_has_no_shares() -> None:
    assert set(formulas.step_metrics("#### 3", "#### 3").values()) == {None}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2+3*4", "14"),
        ("(2+3)*4", "20"),
        ("-(1-3)/4", "1/2"),
        ("1,200*2", "2400"),
        ("$5-$2", "3"),
        ("10%*50", "5"),
        ("05+.5", "11/2"),
        ("0.1+0.2", "3/10"),
        ("5/0", None),
        ("2**9", None),
        ("7//2", None),
        ("__import__('os').system('true')", None),
        ("(" * 300, None),
        ("9" * 300, None),
        ("1e5", None),
        ("1_0", None),
        ("1;2", None),
        ("", None),
        ("\x00", None),
    ],
)
def test_expressions_have_exact_values_or_none(text: str, value: str | None) -> None:
    assert formulas.evaluate_expression(text) == (None if value is None else Fraction(value))


@given(expressions)
def test_values_are_those_of_python(text: str) -> None:
    found = formulas.evaluate_expression(text)
    if len(text) > formulas.MAX_CHARACTERS:
        return
    try:
        exact = eval("".join(f"F({c})" if c.isdigit() else c for c in _tokens(text)), {"F": Fraction})
    except ZeroDivisionError:
        exact = None
    assert found == exact


def _tokens(text: str) -> list[str]:
    return [str(int(piece)) if piece.isdigit() else piece for piece in re.findall(r"\d+|\D", text)]


@given(st.text(max_size=60))
def test_no_text_raises_or_runs(text: str) -> None:
    step = formulas.parse(text)
    assert step.is_right in (True, False, None)
    formulas.step_metrics(f"<<{text}>>", "<<1+1=2>>")


@given(texts, texts)
def test_shares_are_shares_and_the_sides_mirror(prediction: str, label: str) -> None:
    found, mirrored = formulas.step_metrics(prediction, label), formulas.step_metrics(label, prediction)
    for name, share in found.items():
        assert share is None or (share >= 0 and (share <= 1 or name == "extra"))
    if found["iou"] is not None and mirrored["iou"] is not None:
        assert found["iou"] == mirrored["iou"]
        assert found["precision"] == mirrored["recall"]


@given(texts.filter(lambda text: "<<" in text))
def test_a_solution_is_its_own_equal(text: str) -> None:
    found = formulas.step_metrics(text, text)
    if formulas.steps(text):
        assert (found["iou"], found["missing"], found["extra"]) == (1, 0, 0)


def test_the_annotations_of_gsm8k_are_right() -> None:
    lines = real_data("datasets/gsm8k/test.jsonl").read_text(encoding="utf-8").splitlines()
    found = [step for line in lines for step in formulas.steps(json.loads(line)["answer"])]
    assert len(found) == 4282
    # 4,281 have a decimal result; the one other is 3/4=3/4, whose sides are equal.
    assert sum(formulas.parse(step).is_right is True for step in found) == 4282
    assert sum(formulas.parse(step).is_right is True and step != "3/4=3/4" for step in found) == 4281


def test_the_module_calls_neither_eval_nor_exec() -> None:
    with open(formulas.__file__, encoding="utf-8") as file:
        tree = ast.parse(file.read())
    called = {node.func.id for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
    assert not called & {"eval", "exec", "compile", "literal_eval"}
