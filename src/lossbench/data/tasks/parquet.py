"""Your own Parquet files, or those that the vision-loss paper's code prepared."""

from __future__ import annotations

from lossbench.data import prepared
from lossbench.data.example import Example
from lossbench.data.sources import Row
from lossbench.data.task import Split, register
from lossbench.data.tasks.jsonl import OwnData


@register("parquet")
class ParquetData(OwnData):
    """Rows of fields as in `jsonl`, or of token ids in the schema `input_ids, attention_mask, labels_position_id`.

    Token ids are taken as they are, with the boundary that the file names: choose the model whose tokenizer made them.
    Any `answer` then means that the decoded target is the answer. As in the paper, training rows whose target begins
    at position 0, because it fills the row, are left out.
    """

    target: str = "target"

    def example(self, row: Row) -> Example:
        if not prepared.COLUMNS.issubset(row.fields):
            return super().example(row)
        return prepared.example(f"{self.name.lower()}-{row.name}", row, has_answer=self.answer is not None)

    def examples(self, split: Split) -> list[Example]:
        found = super().examples(split)
        if split != "train":
            return found
        kept = [example for example in found if example.meta.get("position") != 0]
        if len(kept) < len(found):
            self.notes.counts["train_position_0"] = len(found) - len(kept)
            self.notes.say(
                f"{self.name} train: {len(found) - len(kept):,} of {len(found):,} rows are left out, because their "
                "labels_position_id is 0: the target fills the row."
            )
        return kept
