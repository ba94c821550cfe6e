from __future__ import annotations

import json

import pytest

from lossbench.data.options import option_number, parse_options
from lossbench.errors import DataError
from tests.evaluation import golden
from tests.real_data import real_data


@pytest.mark.parametrize("case", golden.load("prompts")["math_qa"], ids=lambda case: case["doc"]["Problem"])
def test_options_agree_with_the_reference(case: dict) -> None:
    options = parse_options(case["doc"]["options"])
    gold = options["abcde".index(case["doc"]["correct"])]
    assert options == case["lossbench"]["options"]
    assert gold == case["lossbench"]["gold_text"]
    assert option_number(gold) == case["lossbench"]["gold_number"]


@pytest.mark.parametrize(
    ("option", "number"),
    [
        ("rs . 1,500", "1500"),
        ("33 1 / 3 %", "100/3"),
        ("576 cm 2", "576"),
        ("18 km / hr", "18"),
        ("− 4", "-4"),
        ("2 : 3", None),
        ("3 hours 20 min", None),
        ("5 π", None),
        ("x = 5", None),
        ("1 , 200", None),
        ("12,34", None),
        ("none of these", None),
    ],
)
def test_only_an_option_that_is_one_number_has_a_number(option: str, number: str | None) -> None:
    assert option_number(option) == number


def test_an_option_may_hold_commas_quotes_and_a_doubled_marker() -> None:
    assert parse_options("a ) 1 , 2 , b ) can't tell , c ) c ) 33") == ["1 , 2", "can't tell", "33"]
    assert parse_options("""["a ) can't tell", 'b ) [ 1 , 2 ]']""") == ["can't tell", "[ 1 , 2 ]"]


def test_text_without_options_is_refused() -> None:
    with pytest.raises(DataError, match="No options like"):
        parse_options("38")


@pytest.mark.parametrize("split", ["test", "validation"])
def test_every_real_mathqa_row_has_five_options(split: str) -> None:
    lines = (real_data("datasets/mathqa") / f"{split}.jsonl").read_text(encoding="utf-8").splitlines()
    for line in lines:
        options = parse_options(json.loads(line)["options"])
        assert len(options) == 5
        assert all(options)
