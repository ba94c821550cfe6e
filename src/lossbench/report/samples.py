"""The same prompts, answered under every loss: what a mean of 0.47 looks like."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lossbench.report.formatting import clipped
from lossbench.report.records import RunRecord, State
from lossbench.report.table import Row, Table

COUNT = 5
MAX_CHARACTERS = 700


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


def read_samples(table: Table, count: int = COUNT) -> tuple[list[Sample], dict[str, tuple[str, ...]]]:
    """Evenly spaced test examples that the first finished seed of every loss answered, and problems by run location.

    The choice depends on the order of the ids alone, never on what was answered.
    """
    problems: dict[str, tuple[str, ...]] = {}
    answered: list[tuple[int, Row, RunRecord, dict[str, dict[str, Any]]]] = []
    for index, row in enumerate(table.rows):
        for run in row.variant.runs:
            if run.state is State.MISSING or not run.state.is_ended:
                continue
            examples = run.read_examples()
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
        answers = tuple(_answer(index, row, run, rows[example]) for index, row, run, rows in answered)
        gold = first.get("gold")
        samples.append(Sample(example, _text(first.get("prompt")), None if gold is None else _text(gold), answers))
    return samples, problems


def _is_answer(row: dict[str, Any]) -> bool:
    return row.get("id") is not None and isinstance(row.get("completion"), str)


def _answer(index: int, row: Row, run: RunRecord, example: dict[str, Any]) -> Answer:
    prediction, em = example.get("prediction"), example.get("em")
    return Answer(
        label=row.label,
        index=index,
        seed=run.seed,
        completion=_text(example["completion"]),
        prediction=None if prediction is None else _text(prediction),
        correct=None if em is None else bool(em),
    )


def _text(value: object) -> str:
    return clipped(str(value or "").strip(), MAX_CHARACTERS)


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
