"""Append-only files of JSON lines, which a crash can cut off at the end but never harm before it."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def append(file: Path, line: Mapping[str, Any]) -> None:
    """Add one line, on disk before the call returns. A line that was cut off earlier stays a line of its own."""
    with file.open("a+b") as out:
        size = out.seek(0, os.SEEK_END)
        if size:
            out.seek(size - 1)
            cut_off = out.read(1) != b"\n"
        else:
            cut_off = False
        out.write((b"\n" if cut_off else b"") + json.dumps(line).encode() + b"\n")
        out.flush()
        os.fsync(out.fileno())


def read(file: Path) -> list[dict[str, Any]]:
    """All whole lines; an absent file has none."""
    try:
        texts = file.read_bytes().splitlines()
    except FileNotFoundError:
        return []
    found = []
    for text in texts:
        try:
            line = json.loads(text)
        except (json.JSONDecodeError, UnicodeDecodeError):
            continue
        if isinstance(line, dict):
            found.append(line)
    return found
