"""Why an answer is wrong: a loss that improves exact match often only mends the form of the answers."""

from __future__ import annotations

from lossbench.data import numbers
from lossbench.evaluation.answers.letters import LETTERS, letter
from lossbench.evaluation.answers.rules import exact_match

ERROR_CLASSES = (
    "ok",
    "wrong_value",
    "no_marker",
    "marker_without_number",
    "no_number",
    "no_letter",
    "runaway",
    "empty",
    "truncated_prompt",
)


def error_class(
    completion: str,
    gold: str,
    stop_reason: str,
    *,
    rule: str = "lossbench",
    truncated_prompt: bool = False,
    letters: str = LETTERS,
) -> str:
    """One of `ERROR_CLASSES`: `ok` if the answers match under `rule`, otherwise the first cause that applies.

    truncated_prompt: the model did not see the whole question. empty: nothing but spaces. Then for numbers: runaway:
    the text was cut off at the length limit (stop reason `length`). marker_without_number: `####` and no number after
    it. no_marker: a number, without the marker. no_number: neither. wrong_value: a marked number that is not the gold
    one. For letters: no_letter, wrong_value; a length stop is no error there, as a letter needs one token.
    """
    if exact_match(completion, gold, rule, letters):
        return "ok"
    if truncated_prompt:
        return "truncated_prompt"
    if not completion.strip():
        return "empty"
    if rule == "letter":
        return "no_letter" if letter(completion, letters) is None else "wrong_value"
    if stop_reason == "length":
        return "runaway"
    if numbers.has_marker(completion):
        return "marker_without_number" if numbers.marked(completion) is None else "wrong_value"
    return "no_number" if numbers.last(completion) is None else "no_marker"
