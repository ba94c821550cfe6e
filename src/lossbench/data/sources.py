"""Rows of a dataset: from JSON lines in a folder, or from a pinned revision on the hub."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lossbench.errors import DataError

Row = tuple[str, dict[str, Any]]  # where it came from ("train-17"), and its fields


@dataclass(frozen=True)
class HubDataset:
    id: str
    config: str | None = None


def rows(path: str | None, hub: HubDataset, revision: str | None, split: str, fields: Sequence[str]) -> list[Row]:
    """All rows of a split with the `fields` that a task needs; `path` (a folder) wins over the hub.

    Where the source has no validation split, 10 % of its training rows are split off, shuffled with seed 42.
    """
    read = _reader(path, hub, revision)
    if split == "test" or "validation" in (found := read.splits()):
        return _checked(read, split, fields)
    if "train" not in found:
        raise DataError(f"{read} has no train split; it has {', '.join(sorted(found)) or 'nothing'}.")
    training = _checked(read, "train", fields)
    held_out, kept = held_out_tenth(len(training))
    return [training[i] for i in (held_out if split == "validation" else kept)]


def held_out_tenth(count: int) -> tuple[list[int], list[int]]:
    """Indices of validation and training rows, equal to `Dataset.train_test_split(test_size=0.1, seed=42)`."""
    import numpy as np

    order = np.random.default_rng(42).permutation(count).tolist()
    size = -(-count // 10)
    return order[:size], order[size:]


def check_available(path: str | None, hub: HubDataset, revision: str | None) -> None:
    """Raise at once where no row can be had."""
    if path is not None:
        _reader(path, hub, revision).splits()
        return
    from lossbench.hub import check_reachable

    check_reachable(
        hub.id, "dataset", revision, "or put train.jsonl and test.jsonl into a folder and pass dataset.path=FOLDER"
    )


def read_json_lines(file: Path) -> list[dict[str, Any]]:
    """One JSON object a line; a broken line is an error that names its number."""
    found = []
    with file.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except json.JSONDecodeError as error:
                raise DataError(f"{file}, line {number} is no JSON ({error}): {line.strip()[:80]!r}.") from None
            if not isinstance(row, dict):
                raise DataError(
                    f"{file}, line {number} is no JSON object but {type(row).__name__}: {line.strip()[:80]!r}."
                )
            found.append(row)
    if not found:
        raise DataError(f"{file} is empty: it must hold one JSON object a line.")
    return found


class _Folder:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __str__(self) -> str:
        return str(self.folder)

    def splits(self) -> set[str]:
        if not self.folder.is_dir():
            raise DataError(f"dataset.path={self.folder} is no folder; it must hold train.jsonl and test.jsonl.")
        found = {file.stem for file in self.folder.glob("*.jsonl")}
        for needed in ("train", "test"):
            if needed not in found:
                raise DataError(
                    f"{self.folder / f'{needed}.jsonl'} does not exist; the folder holds "
                    f"{', '.join(sorted(p.name for p in self.folder.iterdir())[:8]) or 'nothing'}."
                )
        return found

    def read(self, split: str) -> list[dict[str, Any]]:
        return read_json_lines(self.folder / f"{split}.jsonl")


class _Hub:
    def __init__(self, hub: HubDataset, revision: str | None) -> None:
        self.hub, self.revision = hub, revision

    def __str__(self) -> str:
        return self.hub.id

    def splits(self) -> set[str]:
        from datasets import get_dataset_split_names

        return set(get_dataset_split_names(self.hub.id, self.hub.config, revision=self.revision))

    def read(self, split: str) -> list[dict[str, Any]]:
        from datasets import load_dataset

        return load_dataset(self.hub.id, self.hub.config, split=split, revision=self.revision).to_list()


def _reader(path: str | None, hub: HubDataset, revision: str | None) -> _Folder | _Hub:
    return _Folder(Path(os.path.expanduser(path))) if path is not None else _Hub(hub, revision)


def _checked(read: _Folder | _Hub, split: str, fields: Sequence[str]) -> list[Row]:
    found = []
    for number, row in enumerate(read.read(split)):
        for field in fields:
            if not isinstance(row.get(field), str) or not row[field].strip():
                raise DataError(
                    f"{read}, {split}, row {number + 1}: the field {field!r} must be a text that is not empty, "
                    f"but it is {row.get(field)!r}; the row has {', '.join(row) or 'no field'}."
                )
        found.append((f"{split}-{number}", row))
    return found
