"""The embedded default: generated word problems, always at hand."""

from __future__ import annotations

from itertools import islice
from typing import Annotated, Literal

from pydantic import Field

from lossbench.data.example import Example
from lossbench.data.task import Scoring, Split, Task, register
from lossbench.data.word_problems import problems

Count = Annotated[int, Field(ge=1, le=100_000)]


@register("arithmetic")
class Arithmetic(Task):
    """Word problems in GSM8K's layout; `data_seed` draws other problems of the same kind."""

    difficulty: Literal["easy", "hard"]
    data_seed: int
    train_examples: Count
    validation_examples: Count
    test_examples: Count

    def scoring(self) -> Scoring:
        return Scoring(max_new_tokens=160)

    def examples(self, split: Split) -> list[Example]:
        count = {"train": self.train_examples, "validation": self.validation_examples, "test": self.test_examples}
        return [
            Example(
                id=f"arithmetic-{self.difficulty}-{self.data_seed}-{split}-{index}",
                prompt=f"Question: {problem.question}\nAnswer:",
                target=f" {problem.answer}",
                answer=problem.answer,
                meta={"template": problem.template, "numbers": list(problem.numbers)},
            )
            for index, problem in enumerate(islice(problems(split, self.difficulty, self.data_seed), count[split]))
        ]
