"""Tasks whose examples are made of rows, one by one: what is the same for all of them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from lossbench.data import sources
from lossbench.data.example import Example
from lossbench.data.splits import Holdout, Split, SplitPolicy, assign
from lossbench.data.task import Task
from lossbench.errors import DataError

SHOWN = 3  # malformed rows in a message


@dataclass(frozen=True)
class LeftOut:
    """A row that is sound but has no place in the task, and why."""

    reason: str


class SourceTask(Task):
    """Examples from the rows of a folder or of the hub. A subclass says where (`hub`), how many rows were `published`
    for each labelled split, and how a row becomes an example."""

    split_policy: SplitPolicy = "clean"

    hub: ClassVar[sources.HubDataset | None] = None
    published: ClassVar[Mapping[str, int]] = {}
    how_to_get: ClassVar[str] = ""

    @abstractmethod
    def example(self, row: sources.Row) -> Example | LeftOut:
        """Make an example of a row; `DataError` where the row is malformed."""

    def examples(self, split: Split) -> list[Example]:
        """The examples of all rows; malformed ones are an error, or counted and left out with `skip_bad`."""
        found: list[Example] = []
        faults: list[str] = []
        left_out: dict[str, int] = {}
        rows = self.rows(split)
        for row in rows:
            try:
                made = self.example(row) if row.fault is None else row.fault
            except DataError as error:
                made = str(error)
            if isinstance(made, Example):
                found.append(made)
            elif isinstance(made, LeftOut):
                left_out[made.reason] = left_out.get(made.reason, 0) + 1
            else:
                faults.append(made)
        for reason, count in left_out.items():
            self.notes.say(f"{self.name} {split}: {count:,} of {len(rows):,} rows are left out, because {reason}.")
        self.notes.counts[f"{split}_left_out"] = sum(left_out.values())
        self._report(split, faults, len(rows))
        return found

    def rows(self, split: Split) -> list[sources.Row]:
        """The rows of a split, in an order that never changes, malformed ones included."""
        found = self._source.splits()
        for needed in self.published:
            if needed == "test" and needed not in found:
                raise DataError(self._source.missing(needed))
        labelled = found & set(self.published) if self.published else found
        parts, sentence = assign(labelled, self.split_policy, self.holdout())
        if split not in parts:
            raise DataError(self._source.missing(split))
        if sentence:
            self.notes.say(f"{self.name}: {sentence}")
        part = parts[split]
        rows = self._source.read(part.source)
        self._say_count(part.source, len(rows))
        return [rows[i] for i in part.indices(len(rows))]

    def _say_count(self, source: str, count: int) -> None:
        expected = self.published.get(source)
        if expected == count:
            self.notes.say(f"{self.name}: {source} of {self._source} has {count:,} rows, as published.")
        elif expected is not None:
            self.notes.say(
                f"{self.name}: {source} of {self._source} has {count:,} rows, but {expected:,} were "
                "published: numbers are not comparable with published ones."
            )
        else:
            self.notes.say(f"{self.name}: {source} of {self._source} has {count:,} rows.")

    def holdout(self) -> Holdout:
        """How validation rows are cut out where the source has none."""
        return Holdout()

    def check_available(self) -> None:
        sources.check_available(self.path, self.hub, self.revision, self.how_to_get)

    @property
    def name(self) -> str:
        return type(self).__name__

    @cached_property
    def _source(self) -> sources.Source:
        return sources.open_source(self.path, self.hub, self.revision, self.how_to_get)

    def _report(self, split: Split, faults: list[str], count: int) -> None:
        self.notes.counts[f"{split}_skipped"] = len(faults)
        if not faults:
            return
        shown = "\n  ".join(faults[:SHOWN]) + ("\n  ..." if len(faults) > SHOWN else "")
        what = f"{len(faults):,} of {count:,} rows of {split} {'is' if len(faults) == 1 else 'are'} malformed"
        if not self.skip_bad:
            raise DataError(f"{what}:\n  {shown}\nMend them, or leave them out with dataset.skip_bad=true.")
        self.notes.say(f"{self.name}: {what} and left out (dataset.skip_bad=true):\n  {shown}")
