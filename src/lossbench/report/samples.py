"""The same prompts, answered under every loss: what a mean of 0.47 looks like."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lossbench.report.formatting import clipped
from lossbench.report.memo import remembered
from lossbench.report.records import RunRecord, State
from lossbench.report.table import Row, Table

COUNT = 5
MAX_CHARACTERS = 700
MIN_CHARACTERS = 60
BUDGET = 100_000  # characters of all completions of a report: its page stays small with a thousand runs too


@dataclass(frozen=True)
class Answer:
    """What one loss's model wrote. `correct` is None where no exact match was recorded."""

    label: str
    index: int
    seed: int | None
    completion: str
    prediction: str | None
    correct: bool | None


@dataclass(frozen=True)
class Sample:
    """One prompt with its reference answer and every loss's completion, in the order of the table."""

    example: str
    prompt: str
    gold: str | None
    answers: tuple[Answer, ...]


def read_samples(table: Table, rows_in_all: int | None = None) -> tuple[list[Sample], dict[str, tuple[str, ...]]]:
    """Evenly spaced test examples that the first finished seed of every loss answered, and problems by run location.

    The choice depends on the order of the ids alone, never on what was answered. `rows_in_all` are those of all
    tables of the report (of this one if None): many rows get fewer and shorter examples.
    """
    count, limit = _sizes(len(table.rows) if rows_in_all is None else rows_in_all)
    problems: dict[str, tuple[str, ...]] = {}
    answered: list[tuple[int, Row, RunRecord, dict[str, dict[str, Any]]]] = []
    for index, row in enumerate(table.rows):
        for run in row.variant.runs:
            if run.state is State.MISSING or not run.state.is_ended:
                continue
            examples = remembered("examples", run, run.read_examples)
            if examples.problems:
                problems[run.location] = examples.problems
            rows = {str(r["id"]): r for r in examples.rows if r.get("split", "test") == "test" and _is_answer(r)}
            if rows:
                answered.append((index, row, run, rows))
                break
    if not answered:
        return [], problems
    common = sorted(set.intersection(*(set(rows) for *_, rows in answered)), key=_natural)
    chosen = [common[(2 * i + 1) * len(common) // (2 * count)] for i in range(count)] if common else []
    samples = []
    for example in dict.fromkeys(chosen):
        first = answered[0][3][example]
        answers = tuple(_answer(index, row, run, rows[example], limit) for index, row, run, rows in answered)
        gold = first.get("gold")
        prompt = _text(first.get("prompt"), limit)
        samples.append(Sample(example, prompt, None if gold is None else _text(gold, limit), answers))
    return samples, problems


def _is_answer(row: dict[str, Any]) -> bool:
    return row.get("id") is not None and isinstance(row.get("completion"), str)


def _sizes(rows: int) -> tuple[int, int]:
    """(examples a table, characters a completion) that keep all of them within the budget."""
    for count in range(COUNT, 0, -1):
        limit = BUDGET // max(1, rows * count)
        if limit >= MAX_CHARACTERS // 2:
            break
    return count, max(MIN_CHARACTERS, min(MAX_CHARACTERS, limit))


def _answer(index: int, row: Row, run: RunRecord, example: dict[str, Any], limit: int) -> Answer:
    prediction, em = example.get("prediction"), example.get("em")
    return Answer(
        label=row.label,
        index=index,
        seed=run.seed,
        completion=_text(example["completion"], limit),
        prediction=None if prediction is None else _text(prediction, limit),
        correct=None if em is None else bool(em),
    )


def _text(value: object, limit: int) -> str:
    return clipped(str(value or "").strip(), limit)


def _natural(text: str) -> tuple[tuple[int, int | str], ...]:
    """Orders `test-2` before `test-10`."""
    parts: list[tuple[int, int | str]] = []
    digits = word = ""
    for character in text + "\0":
        if character.isascii() and character.isdigit():
            if word:
                parts.append((1, word))
                word = ""
            digits += character
        else:
            if digits:
                parts.append((0, int(digits[:18])))
                digits = ""
            word += character
    return (*parts, (1, word))
