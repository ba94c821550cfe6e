"""English prose that every Python carries: the help topics of `pydoc_data.topics`."""

from __future__ import annotations

import hashlib
import re
from typing import Annotated

from pydantic import Field

from lossbench.data.example import Example
from lossbench.data.language_modeling import continuations
from lossbench.data.task import Scoring, Split, Task, register

PLAIN = re.compile(r"[A-Za-z ,.']")


@register("pydocs")
class PyDocs(Task):
    """Language modelling on passages of whole sentences, split 80/10/10 by a hash of their text. The text differs
    between Python versions: good for a smoke test, not for a number to publish."""

    passage_characters: Annotated[int, Field(ge=50)] = 600

    def scoring(self) -> Scoring:
        return Scoring(("perplexity",), stop_strings=(), ends_with_eos=False)

    def examples(self, split: Split) -> list[Example]:
        from pydoc_data.topics import topics

        return [
            Example(id=f"pydocs-{topic}-{index}", prompt="", target=passage)
            for topic in sorted(topics)
            for index, passage in enumerate(passages(topics[topic], self.passage_characters))
            if _split_of(passage) == split
        ]

    def continuations(self, split: Split) -> list[Example]:
        """Prefixes of 20 words, and the next 40 as targets."""
        return continuations(self.examples(split), 20, 40)


def passages(text: str, characters: int) -> list[str]:
    """The sentences of all prose paragraphs, in runs of at most `characters`; a longer sentence is cut at a space."""
    found: list[str] = []
    for paragraph in re.split(r"\n\s*\n", text):
        line = " ".join(paragraph.split())
        if not is_prose(line):
            continue
        for sentence in re.split(r"(?<=[.:;]) ", line):
            if found and len(found[-1]) + 1 + len(sentence) <= characters:
                found[-1] += f" {sentence}"
            else:
                found.append(sentence if len(sentence) <= characters else sentence[:characters].rpartition(" ")[0])
    return [passage for passage in found if len(passage) >= characters // 4]


def is_prose(line: str) -> bool:
    """A sentence rather than code, a list or grammar: over 80 characters, ends in a stop, 93 % plain characters."""
    return len(line) > 80 and line.endswith(".") and len(PLAIN.findall(line)) >= 0.93 * len(line)


def _split_of(passage: str) -> Split:
    bucket = hashlib.blake2b(passage.encode(), digest_size=8).digest()[0] % 10
    return "test" if bucket == 0 else "validation" if bucket == 1 else "train"
