"""HellaSwag (Zellers et al. 2019, https://arxiv.org/abs/1905.07830)."""

from __future__ import annotations

import re
from string import ascii_uppercase
from typing import Any, ClassVar, Literal

from lossbench.data.example import Example
from lossbench.data.source_task import SourceTask
from lossbench.data.sources import HubDataset, Row
from lossbench.data.task import Scoring, register
from lossbench.errors import DataError


@register("hellaswag")
class HellaSwag(SourceTask):
    """`prompt: seed` shows the four endings and asks for a letter; `prompt: lm_eval` compares how likely the endings
    are. They are two tasks: their numbers are not comparable.

    The test split has no labels: test is the validation split. `split_policy: clean` therefore validates on 10 % of
    train, `seed` on the test rows themselves.
    """

    prompt: Literal["seed", "lm_eval"] = "seed"
    cleaning: Literal["none", "lm_eval"] | None = None

    hub = HubDataset("Rowan/hellaswag")
    published: ClassVar = {"train": 39_905, "validation": 10_042}
    prepared_length = 256

    def scoring(self) -> Scoring:
        if self.prompt == "lm_eval":
            return Scoring(("choices", "perplexity"), answer_rule="letter")
        return Scoring(("exact_match", "choices", "perplexity"), answer_rule="letter", max_new_tokens=4)

    def example(self, row: Row) -> Example:
        identifier = f"hellaswag-{row.name}"
        endings, label = _endings(row), _label(row)
        cleaned = (self.cleaning or ("lm_eval" if self.prompt == "lm_eval" else "none")) == "lm_eval"
        choices = tuple(clean(ending) if cleaned else ending for ending in endings)
        letter = ascii_uppercase[label]
        if self.prompt == "lm_eval":
            query = f"{row.text('activity_label')}: {self._context(row)}"
            return Example(identifier, clean(query) if cleaned else query, f" {choices[label]}", letter, choices)
        context = row.text("ctx")
        listed = "\n".join(f"{ascii_uppercase[i]}. {choice}" for i, choice in enumerate(choices))
        text = f"Question: {clean(context) if cleaned else context}\n{listed}\nAnswer: "
        return Example(identifier, text, letter, letter, choices)

    def _context(self, row: Row) -> str:
        if "ctx_a" in row.fields and "ctx_b" in row.fields:
            return f"{row.text('ctx_a', empty=True)} {row.text('ctx_b', empty=True).capitalize()}"
        self.notes.say(
            "HellaSwag: the rows have no ctx_a and ctx_b, so the second half of a context does not get the capital "
            "letter that lm-evaluation-harness gives it."
        )
        return row.text("ctx")


def clean(text: str) -> str:
    """Remove WikiHow's marks as lm-evaluation-harness does: `[title]` ends a sentence, other `[...]` vanish."""
    text = re.sub(r"\[.*?\]", "", text.strip().replace(" [title]", ". "))
    return text.replace("  ", " ")


def _endings(row: Row) -> list[str]:
    endings: Any = row.fields.get("endings")
    if not isinstance(endings, list) or len(endings) != 4 or not all(isinstance(e, str) and e.strip() for e in endings):
        raise DataError(f"{row.place}: the field 'endings' must be a list of 4 texts, but it is {endings!r}.")
    return endings


def _label(row: Row) -> int:
    label = str(row.fields.get("label", "")).strip()
    if label not in {"0", "1", "2", "3"}:
        raise DataError(f"{row.place}: the field 'label' must be 0, 1, 2 or 3, but it is {label!r}.")
    return int(label)
