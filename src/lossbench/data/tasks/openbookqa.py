"""OpenBookQA (Mihaylov et al. 2018, https://arxiv.org/abs/1809.02789)."""

from __future__ import annotations

from string import ascii_uppercase
from typing import Any, ClassVar, Literal

from lossbench.data.example import Example
from lossbench.data.source_task import SourceTask
from lossbench.data.sources import HubDataset, Row
from lossbench.data.task import Scoring, register
from lossbench.errors import DataError


@register("openbookqa")
class OpenBookQA(SourceTask):
    """`prompt: seed` shows the four choices and the fact that answers the question, and asks for a letter;
    `prompt: lm_eval` compares how likely the choices are after the bare question. They are two tasks."""

    prompt: Literal["seed", "lm_eval"] = "seed"

    hub = HubDataset("allenai/openbookqa", "additional")  # `main` lacks the fact
    published: ClassVar = {"train": 4_957, "validation": 500, "test": 500}
    prepared_length = 128

    def scoring(self) -> Scoring:
        if self.prompt == "lm_eval":
            return Scoring(("choices", "perplexity"), answer_rule="letter")
        return Scoring(("exact_match", "choices", "perplexity"), answer_rule="letter", max_new_tokens=4)

    def example(self, row: Row) -> Example:
        question, key = row.text("question_stem"), row.text("answerKey")
        labels, texts = _choices(row)
        if key.strip() not in labels:
            raise DataError(f"{row.place}: the field 'answerKey' is {key!r}, but the choices are {', '.join(labels)}.")
        gold = labels.index(key.strip())
        identifier, letter = f"openbookqa-{row.name}", ascii_uppercase[gold]
        if self.prompt == "lm_eval":
            return Example(identifier, question, f" {texts[gold]}", letter, tuple(texts))
        listed = "\n".join(f"{label}. {text}" for label, text in zip(labels, texts, strict=True))
        prompt = f"Question: {question}\n{listed}\nContext: {row.text('fact1')}\nAnswer: "
        return Example(identifier, prompt, key, letter, tuple(texts))


def _choices(row: Row) -> tuple[list[str], list[str]]:
    choices: Any = row.fields.get("choices")
    labels, texts = (choices.get(key) if isinstance(choices, dict) else None for key in ("label", "text"))
    if not isinstance(labels, list) or not isinstance(texts, list) or not 2 <= len(texts) == len(labels) <= 26:
        raise DataError(
            f"{row.place}: the field 'choices' must hold the lists 'text' and 'label' of the same length, but it is "
            f"{choices!r}."
        )
    if not all(isinstance(text, str) and text.strip() for text in texts):
        raise DataError(f"{row.place}: every choice must be a text that is not empty, but they are {texts!r}.")
    return [str(label).strip() for label in labels], texts
