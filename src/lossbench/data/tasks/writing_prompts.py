"""WritingPrompts (Fan et al. 2018, https://arxiv.org/abs/1805.04833)."""

from __future__ import annotations

from typing import ClassVar

from lossbench.data.example import Example
from lossbench.data.language_modeling import LanguageModeling
from lossbench.data.sources import HubDataset, Row
from lossbench.data.task import register


@register("writing_prompts")
class WritingPrompts(LanguageModeling):
    """A prompt from Reddit and the story that it led to, as one text. A folder may hold fairseq's files
    (`train.wp_source` and `train.wp_target`, with `<newline>` for line breaks) or rows with `prompt` and `story`."""

    hub = HubDataset("euclaise/writingprompts")
    published: ClassVar = {"train": 272_600, "validation": 15_620, "test": 15_138}
    prefix_words = 35
    continuation_words = 80
    continued_rows = 5000

    def example(self, row: Row) -> Example:
        prompt, story = (row.text(name).replace("<newline>", "\n").strip() for name in ("prompt", "story"))
        return super().example(Row(row.name, row.place, {"text": f"{prompt} {story}"}))
