"""Evaluations on disk: `RUN/evaluations/FINGERPRINT/` with evaluation.json and examples.parquet, written once.

The fingerprint is a hash of everything that can move a number; an evaluation of the same fingerprint is there already,
and nothing is ever overwritten. `recompute` makes every number again from the rows alone.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lossbench.errors import DataError
from lossbench.tracking.files import strict, write_json

SCHEMA = 1
FOLDER = "evaluations"  # in a run's own


def fingerprint(facts: Mapping[str, Any]) -> str:
    """16 hex digits of plain facts."""
    return hashlib.sha256(json.dumps(strict(facts), sort_keys=True).encode()).hexdigest()[:16]


def folder_of(run: Path, mark: str) -> Path:
    return run / FOLDER / mark


def read(folder: Path) -> dict[str, Any] | None:
    """evaluation.json, or None where this evaluation was not made yet."""
    try:
        return json.loads((folder / "evaluation.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None


def write(
    folder: Path, facts: Mapping[str, Any], metrics: Mapping[str, float], rows: Sequence[Mapping[str, Any]], **more: Any
) -> dict[str, Any]:
    """Write both files into a new folder that appears whole, and return what evaluation.json holds. Without rows there
    is no examples.parquet.

    Raises `DataError` where the folder is there already.
    """
    described = {"schema": SCHEMA, "fingerprint": folder.name, "metrics": dict(metrics), "facts": dict(facts), **more}
    temporary = folder.with_name(f".{folder.name}.{os.getpid()}.tmp")
    temporary.mkdir(parents=True)
    try:
        if rows:
            write_rows(temporary / "examples.parquet", rows)
        write_json(temporary / "evaluation.json", described)
        if folder.exists():
            raise DataError(f"{folder} is there already, and an evaluation is never overwritten.")
        temporary.rename(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return described


def write_rows(file: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """One row an example."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.Table.from_pylist([dict(row) for row in rows]), file)


def read_rows(file: Path) -> list[dict[str, Any]]:
    """The rows of an examples.parquet, as they were before they were written."""
    import pyarrow.parquet as pq

    try:
        return pq.read_table(file).to_pylist()
    except FileNotFoundError:
        raise DataError(f"{file} is not there, so nothing can be computed from it again.") from None


@dataclass(frozen=True)
class Recomputed:
    """Stored numbers beside those made again from the rows: `equal` names, and (stored, again) of the others; `again`
    is None for a stored number of the evaluated split that the rows do not give."""

    source: Path
    equal: tuple[str, ...]
    different: dict[str, tuple[Any, Any]]

    @property
    def ok(self) -> bool:
        return bool(self.equal) and not self.different

    def __str__(self) -> str:
        if self.ok:
            return f"{self.source}: all {len(self.equal)} numbers are those of the rows"
        faults = [f"{name}: stored {stored}, from the rows {again}" for name, (stored, again) in self.different.items()]
        return f"{self.source}: {len(self.equal)} numbers agree, {len(faults)} do not\n  " + "\n  ".join(faults)


def recompute(run: Path) -> list[Recomputed]:
    """Every aggregate of a run and of its evaluations, made again from their rows; equality is exact."""
    found = []
    for file in [run / "result.json", *sorted((run / FOLDER).glob("*/evaluation.json"))]:
        if file.is_file():
            stored = json.loads(file.read_text(encoding="utf-8"))
            if "harness" not in stored.get("facts", {}):  # whose numbers are another program's
                found.append(_compare(file, stored["metrics"], read_rows(file.with_name("examples.parquet"))))
    if not found:
        raise DataError(f"{run} has neither a result.json nor an evaluation, so there is nothing to compute again.")
    return found


def _compare(file: Path, stored: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> Recomputed:
    from lossbench.evaluation.metrics import PREFIXES, aggregate

    split = rows[0]["split"]
    again = strict(aggregate(rows, split))
    prefix = f"{PREFIXES.get(split, split)}/"
    # A run's result.json also holds numbers of its training, among them the validation loss of its checkpoint.
    wanted = {name for name in stored if name in again or (name.startswith(prefix) and split != "validation")}
    different = {name: (stored[name], again.get(name)) for name in sorted(wanted) if stored[name] != again.get(name)}
    return Recomputed(file, tuple(sorted(wanted - different.keys())), different)
