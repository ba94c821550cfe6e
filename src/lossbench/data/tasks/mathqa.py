"""MathQA (Amini et al. 2019, https://arxiv.org/abs/1905.13319)."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import ClassVar, Literal

from lossbench.data.example import Example
from lossbench.data.options import option_number, parse_options
from lossbench.data.source_task import LeftOut, SourceTask
from lossbench.data.sources import HubDataset, Row
from lossbench.data.task import Scoring, register
from lossbench.errors import DataError

LETTERS = "abcde"
NO_NUMBER = "their answer is not one number (choice-only: they have no place in exact match)"


@register("mathqa")
class MathQA(SourceTask):
    """`prompt: seed` trains on the steps of the linear formula and the number of the right option, and is judged by
    that number; `prompt: lm_eval` on the text of the right option, and is judged by the likelihood of the five.

    `target_format: fixed` reads options by their letter markers and numbers exactly. `target_format: seed` does what
    the original codes do: it cuts options at every comma (`1,001` is 1.0), drops the last piece of a formula that has
    no closing bar, and leaves a stray quote in choices of the list spelling.
    """

    prompt: Literal["seed", "lm_eval"] = "seed"
    target_format: Literal["fixed", "seed"] = "fixed"

    hub = HubDataset("regisss/math_qa")
    published: ClassVar = {"train": 29_837, "validation": 4_475, "test": 2_985}
    prepared_length = 1024

    def scoring(self) -> Scoring:
        if self.prompt == "lm_eval":
            return Scoring(("choices", "perplexity"), answer_rule="letter")
        return Scoring()

    def example(self, row: Row) -> Example | LeftOut:
        problem, options, correct = row.text("Problem"), row.text("options"), row.text("correct").strip()
        if correct not in LETTERS:
            raise DataError(f"{row.place}: the field 'correct' must be one of {', '.join(LETTERS)}, not {correct!r}.")
        index, identifier = LETTERS.index(correct), f"mathqa-{row.name}"
        if self.prompt == "lm_eval":
            choices = _choices(row, options, self.target_format)
            if index >= len(choices):
                raise DataError(f"{row.place}: the right option {correct!r} is not among {choices}.")
            text = f"Question: {problem}\nAnswer:"
            return Example(identifier, text, f" {choices[index]}", correct.upper(), tuple(choices))
        number = seed_number(options, index) if self.target_format == "seed" else _number(row, options, index)
        if number is None:
            return LeftOut(NO_NUMBER)
        target = " ".join([*self._steps(row), f"#### {number}"])
        return Example(identifier, f"Question: {problem}\nAnswer: ", target, f"#### {number}")

    def _steps(self, row: Row) -> list[str]:
        pieces = row.text("linear_formula", empty=True).split("|")
        kept = pieces[:-1] if self.target_format == "seed" else [piece for piece in pieces if piece.strip()]
        return [f"<<{piece}>>" for piece in kept]


def decimal(value: Fraction) -> str:
    """A terminating decimal without exponent where it has at most 12 places (`12.5`), else `a/b`."""
    places = next((n for n in range(13) if (value * 10**n).denominator == 1), None)
    if places is None:
        return str(value)
    digits = f"{abs(int(value * 10**places)):0{places + 1}d}"
    sign = "-" if value < 0 else ""
    return sign + (digits if places == 0 else f"{digits[:-places]}.{digits[-places:]}")


def seed_number(options: str, index: int) -> str | None:
    """The number that the vision-loss paper's code reads: options cut at commas, what is no digit stripped off."""
    pieces = options.split(",")
    if index >= len(pieces):
        return None
    piece = re.sub(r"^[^\d+-]*|[^\d+-]*$", "", re.sub(r"[a-e]\)", "", pieces[index].strip()))
    try:
        return str(float(piece))
    except ValueError:
        return None


def _number(row: Row, options: str, index: int) -> str | None:
    choices = _choices(row, options, "fixed")
    if index >= len(choices):
        raise DataError(f"{row.place}: there are only {len(choices)} options in {options!r}.")
    value = option_number(choices[index])
    return None if value is None else decimal(Fraction(value))


def _choices(row: Row, options: str, target_format: str) -> list[str]:
    if target_format == "seed":  # lm-evaluation-harness' pattern
        return [found[4:].rstrip(" ,") for found in re.findall(r"[abcd] \) .*?, |e \) .*?$", options)]
    try:
        return parse_options(options)
    except DataError as error:
        raise DataError(f"{row.place}: {error}") from None
