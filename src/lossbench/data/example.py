"""What a task makes of a row: a prompt, the target to learn, and the answer to check."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Example:
    """One example of a task, as text.

    `prompt + target` is the text that a model is trained on; the answer scope of a loss covers the target alone.
    `answer` is the gold text that generated answers are compared with; None for language modelling.
    """

    id: str
    prompt: str
    target: str
    answer: str | None = None
    choices: tuple[str, ...] = ()
    meta: dict[str, Any] = field(default_factory=dict)
