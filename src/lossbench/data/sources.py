"""Rows of a dataset: from the files of a folder, or from a pinned revision on the hub."""

from __future__ import annotations

import gzip
import json
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from lossbench.errors import DataError

SPLIT_NAMES = {
    "train": "train",
    "validation": "validation",
    "valid": "validation",
    "val": "validation",
    "dev": "validation",
    "test": "test",
}
SHOWN = 80  # characters of a broken line in a message


@dataclass(frozen=True)
class Row:
    """One row as it was found; `name` ("train-17") becomes part of an example's id, `place` names file and line."""

    name: str
    place: str
    fields: dict[str, Any] = field(default_factory=dict)
    fault: str | None = None  # why the row could not even be read

    def text(self, name: str, *, empty: bool = False) -> str:
        """The field `name`, which must be a text, and not an empty one unless `empty`."""
        value = self.fields.get(name)
        if not isinstance(value, str) or not (empty or value.strip()):
            raise DataError(
                f"{self.place}: the field {name!r} must be a text that is not empty, but it is {value!r}; "
                f"the row has {', '.join(self.fields) or 'no field'}."
            )
        return value


@dataclass(frozen=True)
class HubDataset:
    """A dataset on the hub. `files` is a pattern with `{split}` for repositories whose own loader is a script, which
    `datasets` no longer runs: the hub's conversion to Parquet is read instead."""

    id: str
    config: str | None = None
    files: str | None = None


class Source(Protocol):
    """Where rows come from; as text its name, for messages."""

    def splits(self) -> set[str]: ...
    def read(self, split: str) -> list[Row]: ...
    def missing(self, split: str) -> str: ...


def open_source(path: str | None, hub: HubDataset | None, revision: str | None, how_to_get: str = "") -> Source:
    """The folder `path`, or else the hub; `how_to_get` says where the files are that no hub has."""
    if path is not None:
        return Folder(Path(os.path.expanduser(path)))
    if hub is None:
        raise DataError(f"dataset.path must name a folder with the data. {how_to_get}".rstrip())
    return Hub(hub, revision)


class Folder:
    """A folder with one file a split: `train.jsonl`, `validation.jsonl.gz`, `webtext.test.jsonl`, `wiki.test.tokens`,
    or shards like `test-00000-of-00002.parquet`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __str__(self) -> str:
        return str(self.folder)

    def splits(self) -> set[str]:
        return set(self._files())

    def read(self, split: str) -> list[Row]:
        found: list[Row] = []
        for file in self._files()[split]:
            for place, content in _READERS[_kind(file)](file):
                name = f"{split}-{len(found)}"
                found.append(Row(name, place, fault=content) if isinstance(content, str) else Row(name, place, content))
        if not found:
            raise DataError(f"{self._files()[split][0]} is empty: it must hold one example a line.")
        return found

    def missing(self, split: str) -> str:
        held = sorted(file.name for file in self.folder.iterdir())
        return (
            f"{self.folder / f'{split}.jsonl'} does not exist; the folder holds {', '.join(held[:8]) or 'nothing'}"
            f"{', ...' if len(held) > 8 else ''}. Known kinds of files: {', '.join(_READERS)}, each also with .gz."
        )

    def _files(self) -> dict[str, list[Path]]:
        if not self.folder.is_dir():
            raise DataError(f"dataset.path={self.folder} is no folder; it must hold train.jsonl and test.jsonl.")
        found: dict[str, list[Path]] = {}
        for file in sorted(self.folder.iterdir()):
            split = _split_of(file)
            if split is not None and file.is_file():
                found.setdefault(split, []).append(file)
        for split, files in found.items():
            if len(files) > 1 and not all(_SHARD.search(file.name) for file in files):
                raise DataError(
                    f"{self.folder} holds {len(files)} files for {split}: {', '.join(file.name for file in files)}. "
                    "Leave one of them in the folder."
                )
        return found


class Hub:
    """A dataset of the hub at a revision."""

    def __init__(self, hub: HubDataset, revision: str | None) -> None:
        self.hub, self.revision = hub, revision

    def __str__(self) -> str:
        return self.hub.id

    def splits(self) -> set[str]:
        if self.hub.files is not None:
            return {"train", "validation", "test"}
        from datasets import get_dataset_split_names

        return set(get_dataset_split_names(self.hub.id, self.hub.config, revision=self.revision))

    def read(self, split: str) -> list[Row]:
        from datasets import load_dataset

        if self.hub.files is None:
            found = load_dataset(self.hub.id, self.hub.config, split=split, revision=self.revision)
        else:
            files = self.hub.files.format(split=split)
            pattern = f"hf://datasets/{self.hub.id}@{self.revision or 'main'}/{files}"
            found = load_dataset("parquet", data_files={split: pattern}, split=split)
        return [Row(f"{split}-{i}", f"{self}, {split}, row {i + 1}", fields) for i, fields in enumerate(found)]

    def missing(self, split: str) -> str:
        return f"{self} has no {split} split; it has {', '.join(sorted(self.splits()))}."


def check_available(path: str | None, hub: HubDataset | None, revision: str | None, how_to_get: str = "") -> None:
    """Raise at once where no row can be had."""
    source = open_source(path, hub, revision, how_to_get)
    if isinstance(source, Folder):
        if not source.splits():
            raise DataError(source.missing("train"))
        return
    from lossbench.hub import check_reachable

    assert hub is not None
    check_reachable(
        hub.id, "dataset", revision, "or put train.jsonl and test.jsonl into a folder and pass dataset.path=FOLDER"
    )


Content = dict[str, Any] | str  # the fields of a row, or why it cannot be read
_SHARD = re.compile(r"-\d+-of-\d+")


def _kind(file: Path) -> str:
    return Path(file.name.removesuffix(".gz")).suffix


def _split_of(file: Path) -> str | None:
    if _kind(file) not in _READERS:
        return None
    words = _SHARD.sub("", file.name).lower().split(".")
    return next((SPLIT_NAMES[word] for word in words if word in SPLIT_NAMES), None)


def _lines(file: Path) -> Iterator[tuple[str, bytes]]:
    """Every line with its place, without its line break."""
    try:
        with gzip.open(file) if file.suffix == ".gz" else file.open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                start = line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
                yield f"{file}, line {number}", start.rstrip(b"\r\n")
    except (EOFError, OSError) as error:
        raise DataError(f"{file} cannot be read to its end ({error}): copy or download it again.") from None


def _json_lines(file: Path) -> Iterator[tuple[str, Content]]:
    for place, line in _lines(file):
        if line.strip():
            shown = line.decode(errors="replace").strip()[:SHOWN]
            try:
                content = json.loads(line)
            except ValueError as error:
                yield place, f"{place} is no JSON ({error}): {shown!r}."
                continue
            yield place, content if isinstance(content, dict) else _no_object(place, content, shown)


def _json_array(file: Path) -> Iterator[tuple[str, Content]]:
    text = b"\n".join(line for _, line in _lines(file))
    try:
        rows = json.loads(text)
    except ValueError as error:
        raise DataError(f"{file} is no JSON ({error}). One object a line belongs into a file named .jsonl.") from None
    if not isinstance(rows, list):
        raise DataError(f"{file} must hold a JSON array of objects, but it holds {type(rows).__name__}.")
    for number, row in enumerate(rows, start=1):
        place = f"{file}, entry {number}"
        yield place, row if isinstance(row, dict) else _no_object(place, row, str(row)[:SHOWN])


def _no_object(place: str, content: Any, shown: str) -> str:
    return f"{place} is no JSON object but {type(content).__name__}: {shown!r}."


def _text_lines(file: Path) -> Iterator[tuple[str, Content]]:
    """Every line, blank ones too, with its line break: the field `text`, as the hub's WikiText has it."""
    for place, line in _lines(file):
        try:
            yield place, {"text": f"{line.decode()}\n"}
        except UnicodeDecodeError as error:
            yield place, f"{place} is no UTF-8 text ({error.reason} at byte {error.start})."


def _prompt_and_story(file: Path) -> Iterator[tuple[str, Content]]:
    """fairseq's WritingPrompts: line n of `train.wp_source` is the prompt of line n of `train.wp_target`."""
    story_file = file.with_suffix(".wp_target")
    if not story_file.is_file():
        raise DataError(f"{story_file} does not exist, which must hold the stories for the prompts of {file.name}.")
    for (place, prompt), (_, story) in zip(_lines(file), _lines(story_file), strict=True):
        yield place, {"prompt": prompt.decode(errors="replace"), "story": story.decode(errors="replace")}


def _parquet(file: Path) -> Iterator[tuple[str, Content]]:
    import pyarrow
    import pyarrow.parquet

    try:
        rows = pyarrow.parquet.read_table(file).to_pylist()
    except (pyarrow.ArrowException, OSError) as error:
        raise DataError(f"{file} is no Parquet file that can be read: {error}") from None
    for number, row in enumerate(rows, start=1):
        yield f"{file}, row {number}", row


_READERS: dict[str, Callable[[Path], Iterator[tuple[str, Content]]]] = {
    ".jsonl": _json_lines,
    ".json": _json_array,
    ".parquet": _parquet,
    ".txt": _text_lines,
    ".tokens": _text_lines,
    ".wp_source": _prompt_and_story,
}
