"""The larger files of a run folder, read only when they are asked for: metrics.jsonl and examples.parquet."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lossbench.report.numbers import as_number, one_line, parse_json
from lossbench.report.records import Examples, History

TAIL_BYTES = 1 << 16
Row = tuple[int, dict[str, float]]  # optimizer step, values by key
EXAMPLE_COLUMNS = ("id", "split", "prompt", "completion", "gold", "prediction", "em")


def last_line(path: Path, every_key: bool = False) -> tuple[dict[str, Any], dict[str, float]]:
    """The last whole row of a metrics.jsonl ({} if there is none), from its tail alone.

    With `every_key` also the last number of each key in that tail, for a run that has no result of its own.
    """
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - TAIL_BYTES))
            lines = file.read().splitlines()
    except OSError:
        return {}, {}
    last: dict[str, Any] = {}
    values: dict[str, float] = {}
    for line in reversed(lines):
        try:
            row = parse_json(line)
        except ValueError:
            continue
        if not isinstance(row, dict):
            continue
        last = last or row
        if not every_key:
            break
        for key, value in row.items():
            number = as_number(value)
            if number is not None and key not in ("step", "time"):
                values.setdefault(one_line(key), number)
    return last, values


def read_attempts(folder: Path, keys: tuple[str, ...], still_written: bool = False) -> History:
    """The series of `keys` over all attempts of a run: metrics.attempt1.jsonl and so on, then metrics.jsonl.

    A later attempt counts from its first step on: what an earlier one logged from there was done again.
    """
    earlier = sorted(
        (int(match.group(1)), file)
        for file in folder.glob("metrics.attempt*.jsonl")
        if (match := re.fullmatch(r"metrics\.attempt(\d+)\.jsonl", file.name))
    )
    rows: list[Row] = []
    problems: tuple[str, ...] = ()
    for _, file in earlier:
        found, sentences = _rows(file, keys, still_written=False)
        rows, problems = rows + found, problems + sentences
    found, sentences = _rows(folder / "metrics.jsonl", keys, still_written)
    merged, overlap = merge_attempts(rows + found)
    return History(series=series_of(merged, keys), problems=problems + sentences, overlap=overlap)


def merge_attempts(rows: Sequence[Row]) -> tuple[list[Row], int]:
    """Rows in the order of logging -> rows of which every step was logged by one attempt alone, and how many were cut.

    A step lower than the one before it means that a new attempt began there, from a checkpoint or from nothing: all
    rows from that step on were done again.
    """
    kept: list[Row] = []
    cut = 0
    for row in rows:
        while kept and kept[-1][0] > row[0]:
            kept.pop()
            cut += 1
            while kept and kept[-1][0] == row[0]:  # the step that is logged again, whole
                kept.pop()
                cut += 1
        kept.append(row)
    return kept, cut


def series_of(rows: Sequence[Row], keys: Sequence[str]) -> dict[str, list[tuple[int, float]]]:
    """(step, value) of every key that any row has."""
    series = {key: [(step, values[key]) for step, values in rows if key in values] for key in keys}
    return {key: points for key, points in series.items() if points}


def _rows(path: Path, keys: tuple[str, ...], still_written: bool) -> tuple[list[Row], tuple[str, ...]]:
    """Rows with one of `keys`; those before and after damage are kept, and the damage is named with its byte."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return [], ()
    except OSError as error:
        return [], (f"{path.name} cannot be read: {error.strerror or error}.",)
    rows: list[Row] = []
    broken: list[int] = []
    cut_at = None
    offset = 0
    for line in data.splitlines(keepends=True):
        try:
            row = parse_json(line) if line.strip() else {}
            if not isinstance(row, dict):
                raise ValueError
        except ValueError:
            if line.endswith((b"\n", b"\r")):
                broken.append(offset)
            else:
                cut_at = offset
        else:
            step = as_number(row.get("step"))
            values = {key: number for key in keys if (number := as_number(row.get(key))) is not None}
            if values and step is not None and step.is_integer():
                rows.append((int(step), values))
        offset += len(line)
    problems = []
    if broken:
        lines = "1 line is" if len(broken) == 1 else f"{len(broken)} lines are"
        problems.append(f"{path.name}: {lines} no JSON object (the first at byte {broken[0]}); the others are used.")
    if cut_at is not None and not still_written:
        problems.append(f"{path.name}: the last line is cut off (from byte {cut_at} of {offset}); the others are used.")
    return rows, tuple(problems)


def read_examples(path: Path) -> Examples:
    """The evaluated examples, with those of `EXAMPLE_COLUMNS` that the file has."""
    if not path.is_file():
        return Examples()
    import pyarrow.parquet

    try:
        file = pyarrow.parquet.ParquetFile(path)
        columns = [name for name in EXAMPLE_COLUMNS if name in file.schema_arrow.names]
        rows = file.read(columns=columns).to_pylist()
    except Exception as error:  # pyarrow has no common base for what damaged bytes make it raise
        return Examples(
            problems=(f"{path.name} cannot be read: {str(error).splitlines()[0] if str(error) else error!r}",)
        )
    return Examples(rows=rows)
