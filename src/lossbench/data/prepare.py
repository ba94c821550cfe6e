"""Write a task's splits in the schema of the vision-loss paper's code, one Parquet file a split."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lossbench.data.prepared import Positions, PreparedRow, prepare_rows, write
from lossbench.data.task import Split, Task
from lossbench.errors import ConfigError

SPLITS: tuple[Split, ...] = ("train", "validation", "test")
AT_ONCE = 1000  # examples tokenised in one call, which the tokenizer spreads over the cores

OnProgress = Callable[[str, int, int, float], None]


@dataclass(frozen=True)
class PreparedFile:
    """What was written for one split; `truncated` rows lost the beginning of their prompt."""

    path: Path
    rows: int
    truncated: int

    def __str__(self) -> str:
        cut = f", {self.truncated:,} of them with the beginning of their prompt cut off" if self.truncated else ""
        return f"{self.path}: {self.rows:,} rows{cut}"


def positions_of(value: str) -> Positions:
    """`positions=VALUE` of the command line."""
    match value:
        case "seed" | "exact":
            return value
    raise ConfigError(f"positions={value!r} cannot be used: it must be seed or exact.")


def seed_overrides(options: Mapping[str, Any], positions: Positions) -> list[str]:
    """Overrides that make a task's options those of the paper; its defective targets only with its positions."""
    wanted = ("prompt", "split_policy", *(["target_format"] if positions == "seed" else []))
    return [f"dataset.{option}=seed" for option in wanted if option in options]


def prepare(
    task: Task,
    tokenizer: Any,
    out: Path,
    *,
    length: int | None = None,
    positions: Positions = "seed",
    limit: int | None = None,
    on_progress: OnProgress | None = None,
) -> list[PreparedFile]:
    """Write `train.parquet`, `validation.parquet` and `test.parquet` into the folder `out`.

    Args:
        length: tokens of a row; None takes what the paper took for this task.
        positions: `seed` repeats the original code's positions, `exact` puts them where the target begins.
        limit: at most so many rows a split.
        on_progress: called after each batch with the split, the rows done, the rows in all, and tokens per second.
    """
    length = length or task.prepared_length
    if length is None:
        raise ConfigError(
            f"The paper prepared no rows of {type(task).__name__}: say how long they are to be, dataset.max_length=N."
        )
    out.mkdir(parents=True, exist_ok=True)
    found = []
    for split in SPLITS:
        examples = task.examples(split)[:limit]
        rows: list[PreparedRow] = []
        begun = time.monotonic()
        for start in range(0, len(examples), AT_ONCE):
            rows += prepare_rows(examples[start : start + AT_ONCE], tokenizer, length, positions=positions)
            if on_progress is not None:
                tokens = sum(sum(row.attention_mask) for row in rows)
                on_progress(split, len(rows), len(examples), tokens / max(time.monotonic() - begun, 1e-9))
        path = out / f"{split}.parquet"
        write(rows, path)
        found.append(PreparedFile(path, len(rows), sum(row.truncated for row in rows)))
    return found
