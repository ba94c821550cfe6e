"""GSM8K (Cobbe et al. 2021, https://arxiv.org/abs/2110.14168), from the hub or from JSON lines."""

from __future__ import annotations

import re
from typing import Any, Literal

from lossbench.data import sources
from lossbench.data.example import Example
from lossbench.data.task import Split, Task, register
from lossbench.errors import DataError

HUB = sources.HubDataset("openai/gsm8k", "main")
FIELDS = ("question", "answer")


@register("gsm8k")
class GSM8K(Task):
    """`prompt: lm_eval` trains on the whole reasoning, as lm-evaluation-harness scores it; `prompt: seed` on the
    `<<...>>` steps and the marked answer alone, as the vision-loss paper does."""

    prompt: Literal["lm_eval", "seed"] = "lm_eval"

    def check_available(self) -> None:
        sources.check_available(self.path, HUB, self.revision)

    def examples(self, split: Split) -> list[Example]:
        rows = sources.rows(self.path, HUB, self.revision, split, FIELDS)
        return [self._example(f"gsm8k-{origin}", row) for origin, row in rows]

    def _example(self, identifier: str, row: dict[str, Any]) -> Example:
        question, answer = row["question"], row["answer"]
        reasoning, marker, final = answer.partition("####")
        if not marker or not re.search(r"\d", final):
            raise DataError(f"{identifier}: the answer {answer[-60:]!r} has no number after '####'.")
        target = answer
        if self.prompt == "seed":
            target = " ".join([*re.findall(r"<<[^>]*>>", reasoning), f"#### {final.strip()}"])
        # The space before a target belongs to it: SentencePiece and BPE models never saw a lone space before a word.
        return Example(identifier, f"Question: {question}\nAnswer:", f" {target}", answer)
