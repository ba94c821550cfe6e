"""Penn Treebank as Mikolov et al. 2010 prepared it: lower case, 10,000 words, numbers as N."""

from __future__ import annotations

from typing import Any, ClassVar

from lossbench.data.example import Example
from lossbench.data.language_modeling import LanguageModeling
from lossbench.data.sources import HubDataset, Row
from lossbench.data.task import register


@register("ptb")
class PennTreebank(LanguageModeling):
    """Sentences of the Wall Street Journal, one a row: the field `sentence` on the hub, a line of `ptb.test.txt` in a
    folder. The repository's loader is a script, so the hub's conversion to Parquet is read."""

    hub = HubDataset("ptb-text-only/ptb_text_only", files="penn_treebank/{split}/*.parquet")
    published: ClassVar = {"train": 42_068, "validation": 3_370, "test": 3_761}
    prefix_words = 5
    continuation_words = 25
    running_text = True

    def example(self, row: Row) -> Example:
        sentence: Any = row.fields.get("sentence")
        if isinstance(sentence, str):
            row = Row(row.name, row.place, {"text": f"{sentence}\n"})
        return super().example(row)
