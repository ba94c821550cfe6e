"""GSM8K (Cobbe et al. 2021, https://arxiv.org/abs/2110.14168)."""

from __future__ import annotations

import re
from typing import ClassVar, Literal

from lossbench.data.example import Example
from lossbench.data.source_task import SourceTask
from lossbench.data.sources import HubDataset, Row
from lossbench.data.task import Scoring, register
from lossbench.errors import DataError


@register("gsm8k")
class GSM8K(SourceTask):
    """`prompt: lm_eval` trains on the whole reasoning, as lm-evaluation-harness scores it; `prompt: seed` on the
    `<<...>>` steps and the marked answer alone, as the vision-loss paper does."""

    prompt: Literal["lm_eval", "seed"] = "lm_eval"

    hub = HubDataset("openai/gsm8k", "main")
    published: ClassVar = {"train": 7_473, "test": 1_319}
    prepared_length = 128

    def scoring(self) -> Scoring:
        return Scoring(stop_strings=("Question:", "</s>", "<|im_end|>"))

    def example(self, row: Row) -> Example:
        question, answer = row.text("question"), row.text("answer")
        reasoning, marker, final = answer.partition("####")
        if not marker or not re.search(r"\d", final):
            raise DataError(f"{row.place}: the answer {answer[-60:]!r} has no number after '####'.")
        identifier = f"gsm8k-{row.name}"
        if self.prompt == "seed":
            target = " ".join([*re.findall(r"<<[^>]+>>", reasoning), f"#### {final.strip()}"])
            return Example(identifier, f"Question: {question}\nAnswer: ", target, answer)
        # The harness puts a space between prompt and target; it belongs to the target's first token.
        return Example(identifier, f"Question: {question}\nAnswer:", f" {answer}", answer)
