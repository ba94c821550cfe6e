"""`runs.parquet` and `cells.parquet`: the rows of the CSV files with their types, in full precision."""

from __future__ import annotations

import io
from array import array
from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from lossbench.report.numbers import as_number
from lossbench.report.writers.csv import CELL_COLUMNS, cell_rows, run_columns, run_rows

if TYPE_CHECKING:
    from lossbench.report.build import Report

WHOLE = frozenset(
    {"n", "rank", "expected", "is_baseline", "is_ratio", "seed", "attempt", "last_step", "checkpoint_step", "planned"}
)
REAL = frozenset(
    {
        "mean",
        "sd",
        "low",
        "high",
        "difference",
        "difference_low",
        "difference_high",
        "relative",
        "p",
        "p_holm",
        "seconds",
    }
)


def write(report: Report) -> dict[str, bytes]:
    """Both files."""
    columns, metrics = run_columns(report)
    return {
        "cells.parquet": _file(CELL_COLUMNS, cell_rows(report), ()),
        "runs.parquet": _file(columns, run_rows(report), metrics),
    }


def _file(columns: Sequence[str], rows: Sequence[Sequence[object]], numbers: Sequence[str]) -> bytes:
    fields = []
    for place, name in enumerate(columns):
        kind = float if name in REAL or name in numbers else int if name in WHOLE else str
        fields.append((name, kind, [_value(row[place], kind) for row in rows]))
    return to_parquet(fields)


def to_parquet(columns: Sequence[tuple[str, type, Sequence[Any]]]) -> bytes:
    """A Parquet file of columns (name, kind, values): floats, whole numbers of 64 bits, or text; None is null."""
    import pyarrow
    import pyarrow.parquet

    types = {float: pyarrow.float64(), int: pyarrow.int64(), str: pyarrow.string()}
    schema = pyarrow.schema([(name, types[kind]) for name, kind, _ in columns])
    arrays = [_array(values, kind, types[kind]) for _, kind, values in columns]
    buffer = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.Table.from_arrays(arrays, schema=schema), buffer, compression="zstd")
    return buffer.getvalue()


def _array(values: Sequence[Any], kind: type, arrow_type: Any) -> Any:
    """Made of Arrow's buffers, because `pyarrow.array` would load pandas, a third of a second."""
    import pyarrow

    bits = "".join("0" if value is None else "1" for value in reversed(values))
    buffers = [int(bits or "0", 2).to_bytes((len(values) + 7) // 8, "little")]
    if kind is str:
        texts = [(value or "").encode("utf-8", "replace") for value in values]
        buffers += [array("i", accumulate(map(len, texts), initial=0)).tobytes(), b"".join(texts)]
    else:
        buffers.append(array("d" if kind is float else "q", [value or 0 for value in values]).tobytes())
    return pyarrow.Array.from_buffers(arrow_type, len(values), list(map(pyarrow.py_buffer, buffers)))


def _value(value: object, kind: type) -> object:
    if value is None or value == "":
        return None
    if kind is float:
        return as_number(value)
    return int(str(value)) if kind is int else str(value)
