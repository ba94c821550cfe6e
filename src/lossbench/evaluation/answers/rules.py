"""Exact match under our rule and, for parity, under those that published numbers were made with.

`lossbench`       the first marked number, or without a marker the last number; exact values. The metric of record.
`gsm8k_strict`    lm-evaluation-harness, task gsm8k, filter strict-match, and its normaliser, bit for bit.
`gsm8k_flexible`  the same task's flexible-extract.
`openai`          grade-school-math's `extract_answer` and `is_correct`.
`seed`            DarthReca/segmentation-losses-nlp's number: no sign, no commas; where its `float()` raises, wrong.
`letter`          the letter of a multiple-choice answer.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from fractions import Fraction

from lossbench.data import numbers
from lossbench.errors import ConfigError, nearest
from lossbench.evaluation.answers.letters import LETTERS, letter

_STRICT = re.compile(r"#### (\-?[0-9\.\,]+)")
_FLEXIBLE = re.compile(r"(-?[$0-9.,]{2,})|(-?[0-9]+)")
_SEED = re.compile(r"#### (\d+[\.,]*\d*)")
_INVALID = "[invalid]"


def extract(text: str, rule: str = "lossbench", letters: str = LETTERS) -> str | None:
    """The answer that `rule` reads out of a whole text (a completion or a gold solution), or None.

    Under `lossbench` it is the exact value as `Fraction` writes it (`"12"`, `"15/2"`); under the other rules the
    substring that the original takes. `letters` are those of a question's own options, for the rule `letter`.
    """
    return letter(text, letters) if rule == "letter" else _reader(rule)(text)


def exact_match(prediction: str, gold: str, rule: str = "lossbench", letters: str = LETTERS) -> bool:
    """Whether the answers of two whole texts agree under `rule`.

    Without an answer in the gold text nothing matches, save under the two lm-eval rules, which compare what is left of
    the gold text as it is (so two texts `[invalid]` are equal there, as in the original).
    """
    read = _reader(rule)
    if rule in ("gsm8k_strict", "gsm8k_flexible"):
        return _lm_eval_normalized(read(prediction) or _INVALID) == _lm_eval_normalized(gold)
    predicted, wanted = (extract(text, rule, letters) for text in (prediction, gold))
    if predicted is None or wanted is None:
        return False
    if rule == "lossbench":
        return numbers.equal(Fraction(predicted), Fraction(wanted))
    if rule == "seed":
        return _close(predicted, wanted)
    return predicted == wanted


def seed_crashes(prediction: str, gold: str) -> bool:
    """Whether the vision-loss paper's code stops on two texts: both hold its pattern, and `float()` refuses one."""
    found = [_seed(text) for text in (prediction, gold)]
    return all(text is not None for text in found) and any(not _is_float(text) for text in found if text is not None)


def _lossbench(text: str) -> str | None:
    number = numbers.marked(text) if numbers.has_marker(text) else numbers.last(text)
    return None if number is None else str(number)


def _gsm8k_strict(text: str) -> str | None:
    found = _STRICT.search(text)
    return found.group(1).strip() if found else None


def _gsm8k_flexible(text: str) -> str | None:
    found = _FLEXIBLE.findall(text)
    return next(group for group in found[-1] if group).strip() if found else None


def _openai(text: str) -> str | None:
    found = _STRICT.search(text)
    return found.group(1).strip().replace(",", "") if found else None


def _seed(text: str) -> str | None:
    found = _SEED.search(text)
    return found.group(1) if found else None


_READERS: dict[str, Callable[[str], str | None]] = {
    "lossbench": _lossbench,
    "gsm8k_strict": _gsm8k_strict,
    "gsm8k_flexible": _gsm8k_flexible,
    "openai": _openai,
    "seed": _seed,
    "letter": letter,
}

RULES = tuple(_READERS)


def _reader(rule: str) -> Callable[[str], str | None]:
    if rule not in _READERS:
        raise ConfigError(f"There is no answer rule {rule!r}.{nearest(rule, RULES)}")
    return _READERS[rule]


def _lm_eval_normalized(text: str) -> str:
    for ignored in (",", r"\$", r"(?s).*#### ", r"\.$"):
        text = re.sub(ignored, "", text)
    return text.lower()


def _is_float(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _close(predicted: str, wanted: str) -> bool:
    try:
        return math.isclose(float(predicted), float(wanted))
    except ValueError:
        return False
