"""The larger files of a run folder, read only when they are asked for: metrics.jsonl and examples.parquet."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lossbench.report.numbers import as_number, one_line, parse_json
from lossbench.report.records import Examples, History, Keys

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


def read_attempts(folder: Path, keys: Keys, still_written: bool = False) -> History:
    """The series of `keys` over all attempts of a run: metrics.attempt1.jsonl and so on, then metrics.jsonl.

    A later attempt counts from its first step on: what an earlier one logged from there was done again.
    """
    earlier = sorted(
        (int(match.group(1)), file)
        for file in folder.glob("metrics.attempt*.jsonl")
        if (match := re.fullmatch(r"metrics\.attempt(\d+)\.jsonl", file.name))
    )
    attempts: list[list[Row]] = []
    problems: tuple[str, ...] = ()
    for _, file in earlier:
        found, sentences = _rows(file, keys, still_written=False)
        attempts.append(found)
        problems += sentences
    found, sentences = _rows(folder / "metrics.jsonl", keys, still_written)
    merged, overlap = merge_attempts([*attempts, found])
    return History(series=series_of(merged, keys), problems=problems + sentences, overlap=overlap)


def merge_attempts(attempts: Sequence[Sequence[Row]]) -> tuple[list[Row], int]:
    """Rows of each attempt in the order of logging -> rows of which every step was logged by one attempt alone, and how
    many were cut.

    All rows from an attempt's first step on were done again by it. Within the rows of one attempt a step lower than the
    one before it means that another attempt began there, from a checkpoint or from nothing.
    """
    kept: list[Row] = []
    cut = 0
    for attempt in attempts:
        is_first = True
        for row in attempt:
            if kept and (kept[-1][0] > row[0] or (is_first and kept[-1][0] == row[0])):
                before = len(kept)
                while kept and kept[-1][0] >= row[0]:  # the step that is logged again, whole
                    kept.pop()
                cut += before - len(kept)
            kept.append(row)
            is_first = False
    return kept, cut


def series_of(rows: Sequence[Row], keys: Sequence[str] | None) -> dict[str, list[tuple[int, float]]]:
    """(step, value) of every one of the keys (of all, if None) that any row has."""
    if keys is None:
        keys = sorted({key for _, values in rows for key in values})
    series = {key: [(step, values[key]) for step, values in rows if key in values] for key in keys}
    return {key: points for key, points in series.items() if points}


def _rows(path: Path, keys: Keys, still_written: bool) -> tuple[list[Row], tuple[str, ...]]:
    """Rows with one of `keys`; those before and after damage are kept, and the damage is named with its byte."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return [], ()
    except OSError as error:
        return [], (f"{path.name} cannot be read: {error.strerror or error}.",)
    rows = _whole_rows(data, keys)
    return (rows, ()) if rows is not None else _rows_around_damage(path.name, data, keys, still_written)


def _whole_rows(data: bytes, keys: Keys) -> list[Row] | None:
    """The rows of a log in which every line is one JSON object; None for any other.

    All lines are parsed at once, as one list, in a third of the time of one after the other.
    """
    lines = data.split(b"\n")
    if lines[-1] or any(not (line.startswith(b"{") and line.endswith(b"}")) for line in lines[:-1]):
        return None
    try:
        parsed = parse_json(b"[" + b",".join(lines[:-1]) + b"]")
    except ValueError:
        return None
    if len(parsed) != len(lines) - 1:
        return None
    return [row for entry in parsed if (row := _row(entry, keys))]


def _row(entry: dict[str, Any], keys: Keys) -> Row | None:
    """None without a step, or without any of the keys."""
    if keys is None:
        keys = tuple(key for key in entry if key != "step")
    values = {key: number for key in keys if (number := as_number(entry.get(key))) is not None}
    step = as_number(entry.get("step")) if values else None
    return (int(step), values) if step is not None and step.is_integer() else None


def _rows_around_damage(name: str, data: bytes, keys: Keys, still_written: bool) -> tuple[list[Row], tuple[str, ...]]:
    rows: list[Row] = []
    broken: list[int] = []
    cut_at = None
    offset = 0
    for line in data.splitlines(keepends=True):
        try:
            entry = parse_json(line) if line.strip() else {}
            if not isinstance(entry, dict):
                raise ValueError
        except ValueError:
            if line.endswith((b"\n", b"\r")):
                broken.append(offset)
            else:
                cut_at = offset
        else:
            if row := _row(entry, keys):
                rows.append(row)
        offset += len(line)
    problems = []
    if broken:
        lines = "1 line is" if len(broken) == 1 else f"{len(broken)} lines are"
        problems.append(f"{name}: {lines} no JSON object (the first at byte {broken[0]}); the others are used.")
    if cut_at is not None and not still_written:
        problems.append(f"{name}: the last line is cut off (from byte {cut_at} of {offset}); the others are used.")
    return rows, tuple(problems)


def read_examples(path: Path) -> Examples:
    """The evaluated examples, with those of `EXAMPLE_COLUMNS` that the file has."""
    if not path.is_file():
        return Examples()
    try:
        found = parquet_columns(path, EXAMPLE_COLUMNS)
    except Exception as error:  # pyarrow has no common base for what damaged bytes make it raise
        return Examples(
            problems=(f"{path.name} cannot be read: {str(error).splitlines()[0] if str(error) else error!r}",)
        )
    return Examples(rows=[dict(zip(found, row, strict=True)) for row in zip(*found.values(), strict=True)])


def parquet_columns(path: Path, wanted: Sequence[str]) -> dict[str, list[Any]]:
    """Those of the wanted columns that a Parquet file has, as lists; raises whatever damaged bytes make pyarrow raise.

    Lists, because Arrow's own filters and conversions to numpy load pandas, most of a second.
    """
    import pyarrow
    import pyarrow.parquet

    file = pyarrow.parquet.ParquetFile(pyarrow.BufferReader(path.read_bytes()))
    present = set(file.schema_arrow.names)
    names = [name for name in wanted if name in present]
    table = file.read(columns=names, use_threads=False)
    return {name: table.column(name).to_pylist() for name in names}
