"""Your own data: JSON lines, JSON, text or Parquet files in a folder, mapped to examples by the configuration."""

from __future__ import annotations

from string import Formatter, ascii_uppercase
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from lossbench.data.example import Example
from lossbench.data.source_task import SourceTask
from lossbench.data.sources import Row
from lossbench.data.task import Scoring, register
from lossbench.errors import DataError


@register("jsonl")
class OwnData(SourceTask):
    """Rows of a folder with train, validation and test files, as far as they exist.

    `prompt`, `target` and `answer` are each the name of a field (`question`) or a template of fields
    (`"Question: {question}\\nAnswer:"`); `{listed_choices}` in a template stands for `A. ...` lines. Text goes to the
    model as it stands, so a target after a prompt should begin with a space. `choices` names a field with a list.
    """

    prompt: str | None = None
    target: str
    answer: str | None = None
    choices: str | None = None
    id: str | None = None
    extract: Literal["lossbench", "gsm8k_strict", "gsm8k_flexible", "openai", "letter"] = "lossbench"
    stop: tuple[str, ...] = ()
    max_answer_tokens: Annotated[int, Field(ge=1)] = 256
    append_eos: bool = True

    how_to_get = "It holds train.jsonl, validation.jsonl and test.jsonl, or the same names with another known ending."

    @model_validator(mode="after")
    def _templates_are_well_formed(self) -> OwnData:
        for name in ("prompt", "target", "answer"):
            template = getattr(self, name)
            if template is not None:
                try:
                    _field_names(template)
                except ValueError as error:
                    raise ValueError(f"the template dataset.{name}={template!r} is broken: {error}") from None
        return self

    def scoring(self) -> Scoring:
        asked = {"exact_match": self.answer is not None, "choices": self.choices is not None, "perplexity": True}
        metrics = tuple(name for name, wanted in asked.items() if wanted)
        rule = "letter" if self.choices is not None else self.extract
        return Scoring(metrics, rule, self.stop, self.max_answer_tokens, self.append_eos)

    def example(self, row: Row) -> Example:
        choices = _choices(row, self.choices) if self.choices else ()
        prompt = "" if self.prompt is None else fill(self.prompt, row, choices)
        answer = None if self.answer is None else fill(self.answer, row, choices)
        if choices:
            answer = _letter(row, answer, choices)
        identifier = row.name if self.id is None else fill(self.id, row, ())
        return Example(f"{self.name.lower()}-{identifier}", prompt, fill(self.target, row, choices), answer, choices)


def fill(template: str, row: Row, choices: tuple[str, ...]) -> str:
    """A field of the row, or a template with fields of the row put in; `\\n`, as a shell passes it, is a line break."""
    names = _field_names(template)
    if not names and "{" not in template and "}" not in template:
        return _value(row, template)
    listed = "\n".join(f"{letter}. {choice}" for letter, choice in zip(ascii_uppercase, choices, strict=False))
    values = {name: listed if name == "listed_choices" else _value(row, name) for name in names}
    return template.replace("\\n", "\n").format(**values)


def _field_names(template: str) -> list[str]:
    names = [name for _, name, _, _ in Formatter().parse(template) if name is not None]
    for name in names:
        if not name.isidentifier():
            raise ValueError(f"{{{name}}} is no name of a field; write {{{{ and }}}} for braces that are text")
    return names


def _value(row: Row, name: str) -> str:
    value = row.fields.get(name)
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else row.text(name)


def _choices(row: Row, name: str) -> tuple[str, ...]:
    found: Any = row.fields.get(name)
    if isinstance(found, dict):
        found = found.get("text")
    if not isinstance(found, list) or not 2 <= len(found) <= 26 or not all(isinstance(c, str) and c for c in found):
        raise DataError(f"{row.place}: the field {name!r} must be a list of 2 to 26 texts, but it is {found!r}.")
    return tuple(found)


def _letter(row: Row, answer: str | None, choices: tuple[str, ...]) -> str:
    """The letter of the right choice, which may be given by letter, by number from 0, or by its text."""
    letters = ascii_uppercase[: len(choices)]
    text = (answer or "").strip()
    if answer in choices:
        return letters[choices.index(answer)]
    if len(text) == 1 and text.upper() in letters:
        return text.upper()
    if text.isdecimal() and int(text) < len(choices):
        return letters[int(text)]
    raise DataError(f"{row.place}: the answer {answer!r} is no letter, number from 0 or text of {list(choices)}.")
