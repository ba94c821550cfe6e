"""Writing of a report: all files or none, and none where the runs are as they were."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any

from lossbench import __version__
from lossbench.report.errors import OutputError
from lossbench.report.memo import signature
from lossbench.report.records import RunRecord

CACHE = ".cache"
STATE = "report.json"
Files = Mapping[str, str | bytes]


def write_files(files: Files, out: Path) -> None:
    """Write all files into a temporary folder inside `out` (the same file system), then rename them into place.

    Raises:
        OutputError: the folder cannot be made or written; files that were there are as they were.
    """
    is_new = not out.exists()
    aside = None
    try:
        out.mkdir(parents=True, exist_ok=True)
        aside = Path(tempfile.mkdtemp(prefix=".report-", dir=out))
        for name, content in files.items():
            target = aside / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8"))
        for name in files:
            (out / name).parent.mkdir(parents=True, exist_ok=True)
            os.replace(aside / name, out / name)
    except OSError as error:
        raise OutputError(
            f"The report cannot be written to {out}: {error.strerror or error}. What was there is as it was; "
            "name a folder that can be written with --out."
        ) from error
    finally:
        if aside is not None:
            shutil.rmtree(aside, ignore_errors=True)
            if is_new and not any(out.iterdir()):
                with suppress(OSError):
                    out.rmdir()


def fingerprint(records: Sequence[RunRecord], *others: Any) -> str:
    """A digest of all that a report is made of: the records, sizes and times of their files, choices, and our code."""
    digest = hashlib.sha256(_code().encode())
    plain = [field.name for field in fields(RunRecord) if field.compare]
    for record in records:
        known = [getattr(record, name) for name in plain]
        digest.update(json.dumps([known, signature(record)], default=_as_text, sort_keys=True).encode())
    digest.update(json.dumps(others, default=_as_text, sort_keys=True).encode())
    return digest.hexdigest()


def _as_text(value: object) -> object:
    return (
        dict(value)
        if isinstance(value, Mapping)
        else sorted(value)
        if isinstance(value, set | frozenset)
        else str(value)
    )


@cache
def _code() -> str:
    """A digest of the report's own modules, templates and data: another version writes another report."""
    digest = hashlib.sha256(__version__.encode())
    for file in sorted(Path(__file__).parent.rglob("*")):
        if file.is_file() and file.suffix != ".pyc":
            digest.update(file.name.encode() + file.read_bytes())
    return digest.hexdigest()


def unchanged(out: Path, digest: str) -> dict[str, Any] | None:
    """What was noted when this very report was written into `out`; None where it was not, or a file changed since."""
    try:
        state = json.loads((out / CACHE / STATE).read_text(encoding="utf-8"))
        if state["fingerprint"] != digest:
            return None
        whole = all(_digest((out / name).read_bytes()) == known for name, known in state["files"].items())
        return state if whole else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def remember(out: Path, digest: str, files: Files, facts: Mapping[str, Any]) -> None:
    """Note what was written from what, and facts that the next report would have to find again (plain data).

    A note that cannot be written is none: the next report does the work again.
    """
    state = {
        "fingerprint": digest,
        "files": {name: _digest(c if isinstance(c, bytes) else c.encode("utf-8")) for name, c in sorted(files.items())},
        **facts,
    }
    with suppress(OutputError):
        write_files({STATE: json.dumps(state, indent=1), ".gitignore": "*\n"}, out / CACHE)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
