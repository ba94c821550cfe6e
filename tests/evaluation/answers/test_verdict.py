from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lossbench.evaluation import answers


@pytest.mark.parametrize(
    ("completion", "stop_reason", "expected"),
    [
        ("<<3*4=12>> #### 12", "eos", "ok"),
        ("It is 12.", "eos", "ok"),
        ("#### 12 and on and on", "length", "ok"),
        ("#### 13", "eos", "wrong_value"),
        ("It is 13.", "stop_string", "no_marker"),
        ("#### twelve", "eos", "marker_without_number"),
        ("I do not know", "eos", "no_number"),
        ("1 + 1 + 1 + 1", "length", "runaway"),
        (" \n", "length", "empty"),
    ],
)
def test_each_cause_has_its_class(completion: str, stop_reason: str, expected: str) -> None:
    assert answers.error_class(completion, "#### 12", stop_reason) == expected


def test_a_wrong_answer_to_a_cut_off_question_is_the_prompt_s_fault() -> None:
    assert answers.error_class("#### 13", "#### 12", "eos", truncated_prompt=True) == "truncated_prompt"
    assert answers.error_class("#### 12", "#### 12", "eos", truncated_prompt=True) == "ok"


@pytest.mark.parametrize(
    ("completion", "expected"), [("B", "ok"), ("(C) dogs", "wrong_value"), ("dogs", "no_letter"), ("", "empty")]
)
def test_letters_have_their_own_classes(completion: str, expected: str) -> None:
    assert answers.error_class(completion, "B", "length", rule="letter") == expected


@given(completion=st.text("0123 #.\nab"), stop_reason=st.sampled_from(["eos", "stop_string", "length"]))
def test_ok_is_exact_match_and_every_class_is_known(completion: str, stop_reason: str) -> None:
    found = answers.error_class(completion, "#### 12", stop_reason)
    assert found in answers.ERROR_CLASSES
    assert (found == "ok") == answers.exact_match(completion, "#### 12")
