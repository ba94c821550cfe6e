"""What a task is, and the registry that finds one by name."""

from __future__ import annotations

import importlib
import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from lossbench.config import DatasetConfig
from lossbench.data.example import Example
from lossbench.errors import ConfigError, DataError, nearest

Split = Literal["train", "validation", "test"]


class Task(BaseModel, ABC):
    """One file with four things to know: where rows come from, how a row becomes an `Example`, how an answer is read
    out of generated text, and which metrics are of record. Fields are the options of the dataset's YAML."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    path: str | None = None
    revision: str | None = None

    metrics: ClassVar[tuple[str, ...]] = ("exact_match", "perplexity")
    answer_rule: ClassVar[str] = "lossbench"
    stop_strings: ClassVar[tuple[str, ...]] = ("Question:",)
    max_new_tokens: ClassVar[int] = 256
    ends_with_eos: ClassVar[bool] = True  # False where a target is cut out of a longer text

    @abstractmethod
    def examples(self, split: Split) -> list[Example]:
        """All examples of a split, in an order that never changes."""

    def check_available(self) -> None:
        """Raise `DataError` at once, before heavy imports, where the source is known to be missing."""


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
        return task(path=config.path, revision=config.revision, **config.options)
    except ValidationError as error:
        fault = error.errors()[0]
        key = ".".join(map(str, fault["loc"]))
        if fault["type"] == "extra_forbidden":
            raise ConfigError(
                f"Unknown key dataset.{key}={fault['input']!r} for the task {config.task!r}."
                f"{nearest(key, [*task.model_fields, *DatasetConfig.model_fields])}"
            ) from None
        raise ConfigError(f"dataset.{key}={fault['input']!r} cannot be used: {fault['msg']}.") from None


def load(task: Task, split: Split, limit: int | None) -> list[Example]:
    """The first `limit` examples of a split; an empty split is an error."""
    examples = task.examples(split)[:limit]
    if not examples:
        raise DataError(f"The {split} split of {type(task).__name__} ({task.path or 'built in'}) holds no example.")
    return examples
