"""`runs.parquet` and `cells.parquet`: the rows of the CSV files with their types, in full precision."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from lossbench.report.numbers import as_number
from lossbench.report.writers.csv import CELL_COLUMNS, cell_rows, run_columns, run_rows

if TYPE_CHECKING:
    from lossbench.report.build import Report

WHOLE = frozenset(
    {"n", "expected", "is_baseline", "is_ratio", "seed", "attempt", "last_step", "checkpoint_step", "planned"}
)
REAL = frozenset(
    {"mean", "sd", "low", "high", "difference", "difference_low", "difference_high", "p", "p_holm", "seconds"}
)


def write(report: Report) -> dict[str, bytes]:
    """Both files."""
    columns, metrics = run_columns(report)
    return {
        "cells.parquet": _file(CELL_COLUMNS, cell_rows(report), ()),
        "runs.parquet": _file(columns, run_rows(report), metrics),
    }


def _file(columns: Sequence[str], rows: Sequence[Sequence[object]], numbers: Sequence[str]) -> bytes:
    import pyarrow
    import pyarrow.parquet

    arrays, fields = [], []
    for place, name in enumerate(columns):
        is_number = name in REAL or name in numbers
        kind = pyarrow.float64() if is_number else pyarrow.int64() if name in WHOLE else pyarrow.string()
        arrays.append(pyarrow.array([_value(row[place], kind, pyarrow) for row in rows], kind))
        fields.append(pyarrow.field(name, kind))
    table = pyarrow.Table.from_arrays(arrays, schema=pyarrow.schema(fields))
    buffer = io.BytesIO()
    pyarrow.parquet.write_table(table, buffer, compression="zstd")
    return buffer.getvalue()


def _value(value: object, kind: Any, pyarrow: Any) -> object:
    if value is None or value == "":
        return None
    if kind == pyarrow.float64():
        return as_number(value)
    return int(str(value)) if kind == pyarrow.int64() else str(value)
