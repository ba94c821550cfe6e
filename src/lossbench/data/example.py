"""What a task makes of a row: a prompt, the target to learn, and the answer to check."""

from __future__ import annotations

from dataclasses import dataclass, field
from string import ascii_uppercase
from typing import Any


@dataclass(frozen=True)
class Example:
    """One example of a task, as text.

    `prompt + target` is the text that a model is trained on; the answer scope of a loss covers the target alone.
    `answer` is the gold text that generated answers are compared with; None for language modelling.
    `choices` are the texts to choose from, in the order of their letters; `answer` is then the letter of the right one.
    """

    id: str
    prompt: str
    target: str
    answer: str | None = None
    choices: tuple[str, ...] = ()
    meta: dict[str, Any] = field(default_factory=dict)

    @property
    def gold_choice(self) -> int | None:
        """Index of the right one of `choices`, or None where there is none."""
        index = ascii_uppercase.find(self.answer or "?") if self.choices else -1
        return index if 0 <= index < len(self.choices) else None
