"""What a task is, and the registry that finds one by name."""

from __future__ import annotations

import importlib
import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict, PrivateAttr, ValidationError

from lossbench.config import DatasetConfig
from lossbench.data.example import Example
from lossbench.data.splits import Split as Split
from lossbench.data.tokens import TokenizedExample
from lossbench.errors import ConfigError, DataError, nearest


@dataclass(frozen=True)
class Scoring:
    """How the answers of a task are generated, read and judged."""

    metrics: tuple[str, ...] = ("exact_match", "perplexity")
    answer_rule: str = "lossbench"
    stop_strings: tuple[str, ...] = ("Question:",)
    max_new_tokens: int = 256
    ends_with_eos: bool = True  # False where a target is cut out of a longer text


@dataclass
class Notes:
    """What a reader of the results should know about the data: sentences, and counts by name (`test_skipped`)."""

    sentences: list[str] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)

    def say(self, sentence: str) -> None:
        """Add a sentence, once."""
        if sentence not in self.sentences:
            self.sentences.append(sentence)

    def count_too_long(self, split: str, examples: int, kept: int, window: int) -> None:
        """Count the examples of a split that were left out because their targets do not fit, and say so.

        Raises `DataError` where none is left.
        """
        if not kept:
            raise DataError(f"All {examples:,} targets of {split} have more than {window:,} tokens: nothing is left.")
        count = self.counts[f"{split}_too_long"] = examples - kept
        if count:
            self.say(
                f"{count:,} of {examples:,} examples of {split} are left out (dataset.skip_bad=true): their targets "
                f"have more than {window:,} tokens."
            )

    def count_truncated(self, split: str, tokens: Sequence[TokenizedExample], window: int) -> None:
        """Count the prompts of a split that were cut off to fit `window` tokens, and say so."""
        count = self.counts[f"{split}_truncated"] = sum(example.truncated for example in tokens)
        if count:
            self.say(
                f"{count:,} of {len(tokens):,} prompts of {split} lost their beginning: with their targets they have "
                f"more than {window:,} tokens."
            )


class Task(BaseModel, ABC):
    """One file with four things to know: where rows come from, how a row becomes an `Example`, how an answer is read
    out of generated text, and which metrics are of record. Fields are the options of the dataset's YAML."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    path: str | None = None
    revision: str | None = None
    skip_bad: bool = False

    prepared_length: ClassVar[int | None] = None  # tokens of a row that the vision-loss paper prepared
    _notes: Notes = PrivateAttr(default_factory=Notes)

    @abstractmethod
    def examples(self, split: Split) -> list[Example]:
        """All examples of a split, in an order that never changes."""

    def scoring(self) -> Scoring:
        """How answers are judged; it may depend on the options."""
        return Scoring()

    def check_available(self) -> None:
        """Raise `DataError` at once, before heavy imports, where the source is known to be missing."""

    @property
    def notes(self) -> Notes:
        """What was found out while the examples were read."""
        return self._notes

    @property
    def metrics(self) -> tuple[str, ...]:
        return self.scoring().metrics

    @property
    def answer_rule(self) -> str:
        return self.scoring().answer_rule

    @property
    def stop_strings(self) -> tuple[str, ...]:
        return self.scoring().stop_strings

    @property
    def max_new_tokens(self) -> int:
        return self.scoring().max_new_tokens

    @property
    def ends_with_eos(self) -> bool:
        return self.scoring().ends_with_eos


_tasks: dict[str, type[Task]] = {}
AnyTask = TypeVar("AnyTask", bound=type[Task])


def register(name: str) -> Callable[[AnyTask], AnyTask]:
    """Class decorator: `dataset.task: NAME` in a YAML file then builds this task."""

    def add(task: AnyTask) -> AnyTask:
        _tasks[name] = task
        return task

    return add


def _discover() -> dict[str, type[Task]]:
    """Import every module of lossbench.data.tasks: a new task is one new file, no list to edit."""
    package = importlib.import_module("lossbench.data.tasks")
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{module.name}")
    return _tasks


def create(config: DatasetConfig) -> Task:
    """The task that a dataset configuration names, with its options checked."""
    tasks = _discover()
    if config.task not in tasks:
        raise ConfigError(f"dataset.task={config.task!r} is no task.{nearest(config.task, tasks)}")
    task = tasks[config.task]
    try:
        return task(path=config.path, revision=config.revision, skip_bad=config.skip_bad, **config.options)
    except ValidationError as error:
        fault = error.errors()[0]
        key = ".".join(map(str, fault["loc"]))
        if fault["type"] == "extra_forbidden":
            raise ConfigError(
                f"Unknown key dataset.{key}={fault['input']!r} for the task {config.task!r}."
                f"{nearest(key, [*task.model_fields, *DatasetConfig.model_fields])}"
            ) from None
        if fault["type"] == "value_error":
            raise ConfigError(f"dataset: {fault['ctx']['error']}.") from None
        raise ConfigError(f"dataset.{key}={fault['input']!r} cannot be used: {fault['msg']}.") from None


def load(task: Task, split: Split, limit: int | None) -> list[Example]:
    """The first `limit` examples of a split; an empty split is an error."""
    examples = task.examples(split)[:limit]
    if not examples:
        raise DataError(f"The {split} split of {type(task).__name__} ({task.path or 'built in'}) holds no example.")
    return examples
