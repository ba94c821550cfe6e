"""WebText, the test bed of GPT-2's outputs (https://github.com/openai/gpt-2-output-dataset)."""

from __future__ import annotations

from typing import ClassVar

from lossbench.data.language_modeling import LanguageModeling
from lossbench.data.task import register


@register("webtext")
class WebText(LanguageModeling):
    """Web pages that Reddit linked to; OpenAI's files `webtext.train.jsonl`, `.valid` and `.test` in a folder."""

    published: ClassVar = {"train": 250_000, "validation": 5_000, "test": 5_000}
    how_to_get = (
        "WebText is on no hub: put webtext.train.jsonl, webtext.valid.jsonl and webtext.test.jsonl into it, from "
        "https://openaipublic.blob.core.windows.net/gpt-2/output-dataset/v1/."
    )
    prefix_words = 20
    continuation_words = 80
    continued_rows = 5000
