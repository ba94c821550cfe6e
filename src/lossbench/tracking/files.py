"""Files that are whole or absent, and JSON that any reader accepts."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def write_atomically(file: Path, text: str) -> None:
    """Write to a temporary name, sync, rename: a crash leaves the old file or the new one."""
    temporary = file.with_name(f".{file.name}.{os.getpid()}.tmp")
    with temporary.open("w", encoding="utf-8") as out:
        out.write(text)
        out.flush()
        os.fsync(out.fileno())
    temporary.replace(file)


def write_json(file: Path, value: Mapping[str, Any]) -> None:
    write_atomically(file, json.dumps(strict(value), indent=2, ensure_ascii=False) + "\n")


def strict(value: Any) -> Any:
    """The same value as strict JSON: NaN and infinities become the words that the report reads back."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, Mapping):
        return {str(key): strict(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [strict(inner) for inner in value]
    return value
