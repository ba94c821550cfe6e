"""Golden prompts and prepared rows, made by the original codes; their `meta` says which."""

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

from lossbench import app
from lossbench.config import DatasetConfig
from lossbench.data import task as tasks
from lossbench.data.example import Example
from lossbench.data.source_task import LeftOut, SourceTask
from lossbench.data.sources import Row

FOLDER = Path(__file__).resolve().parents[1] / "golden" / "eval"
TASKS = {"gsm8k": "gsm8k", "math_qa": "mathqa", "hellaswag": "hellaswag", "openbookqa": "openbookqa"}


def load(name: str) -> Any:
    return json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))


@lru_cache
def composed(*overrides: str) -> DatasetConfig:
    return app.compose(*overrides).dataset


def source_task(*overrides: str) -> SourceTask:
    task = tasks.create(composed(*overrides))
    assert isinstance(task, SourceTask)
    return task


def example(dataset: str, doc: dict, *options: str) -> Example | LeftOut:
    """What the task of a golden's dataset makes of its row; MathQA with the defects of the original codes."""
    defects = ["dataset.target_format=seed"] if dataset == "math_qa" else []
    return source_task(f"dataset={TASKS[dataset]}", *defects, *options).example(Row("test-0", "test, line 1", doc))
