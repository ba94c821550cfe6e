from __future__ import annotations

import pytest

from lossbench.data import numbers
from tests.evaluation import golden


@pytest.mark.parametrize("case", golden.load("extraction")["cases"], ids=lambda case: case["id"])
def test_marked_and_last_number_agree_with_the_reference(case: dict) -> None:
    found = {"marked": numbers.marked(case["text"]), "last": numbers.last(case["text"])}
    expected = {name: case["lossbench"][name] for name in found}
    assert {name: None if number is None else str(number) for name, number in found.items()} == expected
