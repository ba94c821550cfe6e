"""The larger files of a run folder, read only when they are asked for: metrics.jsonl and examples.parquet."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from lossbench.report.numbers import as_number, parse_json
from lossbench.report.records import Examples, History

TAIL_BYTES = 1 << 16
EXAMPLE_COLUMNS = ("id", "split", "prompt", "completion", "gold", "prediction", "em")


def last_line(path: Path) -> dict[str, Any]:
    """The last whole row of a metrics.jsonl ({} if there is none), from its tail alone."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - TAIL_BYTES))
            lines = file.read().splitlines()
    except OSError:
        return {}
    for line in reversed(lines):
        try:
            row = parse_json(line)
        except ValueError:
            continue
        if isinstance(row, dict):
            return row
    return {}


def read_history(path: Path, keys: tuple[str, ...], still_written: bool = False) -> History:
    """The series of `keys` over `step`. Rows before and after damage are kept; the damage is named with its byte.

    Args:
        path: a metrics.jsonl.
        keys: the metric names that are wanted.
        still_written: True for a run that goes on, whose last line may be in the middle of being written.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return History()
    except OSError as error:
        return History(problems=(f"{path.name} cannot be read: {error.strerror or error}.",))
    series: dict[str, list[tuple[int, float]]] = {key: [] for key in keys}
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
            _take(row, series)
        offset += len(line)
    problems = []
    if broken:
        lines = "1 line is" if len(broken) == 1 else f"{len(broken)} lines are"
        problems.append(f"{path.name}: {lines} no JSON object (the first at byte {broken[0]}); the others are used.")
    if cut_at is not None and not still_written:
        problems.append(f"{path.name}: the last line is cut off (from byte {cut_at} of {offset}); the others are used.")
    return History(series={key: values for key, values in series.items() if values}, problems=tuple(problems))


def _take(row: dict[str, Any], series: dict[str, list[tuple[int, float]]]) -> None:
    step = as_number(row.get("step"))
    if step is None or not step.is_integer():
        return
    for key, values in series.items():
        number = as_number(row.get(key))
        if number is not None:
            values.append((int(step), number))


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
