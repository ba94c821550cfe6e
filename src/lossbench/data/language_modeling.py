"""Language modelling: texts become passages to learn, and prefixes with their human continuations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, ClassVar

from pydantic import Field

from lossbench.data.example import Example
from lossbench.data.source_task import SourceTask
from lossbench.data.sources import Row
from lossbench.data.splits import Holdout
from lossbench.data.task import Scoring, Split

SHORTEST = 100  # characters of a text that is continued
SPARE_WORDS = 10  # that it has beyond prefix and continuation


class LanguageModeling(SourceTask):
    """Three views of a split: `documents` as the source has them, `examples` cut into passages that fit a context
    window, and `continuations` for generation, by the protocol of the EMO paper (https://arxiv.org/abs/2310.04691)."""

    passage_characters: Annotated[int, Field(ge=50)] = 1000

    prefix_words: ClassVar[int]
    continuation_words: ClassVar[int]
    continued_rows: ClassVar[int] = 4000  # only so many first rows, counted before unsuitable ones are left out
    running_text: ClassVar[bool] = False  # rows are lines of one text; otherwise each is a text of its own
    text_field: ClassVar[str] = "text"

    def scoring(self) -> Scoring:
        return Scoring(("perplexity",), stop_strings=(), ends_with_eos=False)

    def example(self, row: Row) -> Example:
        text = row.text(self.text_field, empty=self.running_text)
        return Example(f"{self.name.lower()}-{row.name}", "", text)

    def holdout(self) -> Holdout:
        """Lines of a running text are held out from its beginning, so that both parts stay texts."""
        return Holdout(shuffled=not self.running_text)

    def documents(self, split: Split) -> list[Example]:
        """Every row as one example without a prompt."""
        return super().examples(split)

    def examples(self, split: Split) -> list[Example]:
        """Passages of at most `passage_characters`; joined again they are the documents."""
        return passages(self.documents(split), self.passage_characters, running_text=self.running_text)

    def continuations(self, split: Split) -> list[Example]:
        """Prefixes of `prefix_words` as prompts, and the next `continuation_words` as targets.

        Of the first `continued_rows` rows, those with at least 100 characters, at least 10 words more than prefix and
        continuation, and no `==`; words are what single spaces separate, as in EMO's code.
        """
        documents = self.documents(split)[: self.continued_rows]
        return continuations(documents, self.prefix_words, self.continuation_words)


def continuations(documents: Sequence[Example], prefix_words: int, continuation_words: int) -> list[Example]:
    """The beginning of each document that is long enough, as prompt and target."""
    found = []
    end = prefix_words + continuation_words
    for document in documents:
        words = document.target.split(" ")
        if len(document.target) < SHORTEST or len(words) < end + SPARE_WORDS or "==" in document.target:
            continue
        prefix, continuation = " ".join(words[:prefix_words]), " ".join(words[prefix_words:end])
        found.append(Example(document.id, prefix, f" {continuation}"))
    return found


def passages(documents: Sequence[Example], characters: int, *, running_text: bool) -> list[Example]:
    """Cut documents at spaces into passages of at most `characters`, without losing a character between them. Lines of
    a running text are first put together as far as they fit. Passages of white space alone are left out."""
    texts = _packed(documents, characters) if running_text else documents
    return [
        replace(text, id=f"{text.id}-{number}", target=piece)
        for text in texts
        for number, piece in enumerate(cut(text.target, characters))
        if piece.strip()
    ]


def cut(text: str, characters: int) -> list[str]:
    """Pieces of at most `characters`, cut before the last space that allows it, or anywhere in a longer word."""
    pieces = []
    while len(text) > characters:
        at = text.rfind(" ", 1, characters + 1)
        at = at if at > 0 else characters
        pieces.append(text[:at])
        text = text[at:]
    return [*pieces, text]


def _packed(lines: Sequence[Example], characters: int) -> list[Example]:
    found: list[Example] = []
    for line in lines:
        if found and (len(found[-1].target + line.target) <= characters or not found[-1].target.strip()):
            found[-1] = replace(found[-1], target=found[-1].target + line.target)
        else:
            found.append(line)
    return found
