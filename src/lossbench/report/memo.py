"""What was read from a run's files, kept while a report is watched: only files that changed are read again.

Outside of `keeping()` nothing is kept, so that a report on ten thousand runs needs the memory of one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from lossbench.report.records import RunRecord

T = TypeVar("T")
Signature = tuple[tuple[str, int, int], ...]
_kept: dict[tuple[str, str], tuple[Signature, Any]] | None = None


def signature(run: RunRecord) -> Signature:
    """(name, size, modification time in ns) of every file of a run's folder, or of the file that it was read from."""
    if run.path is None:
        return ()
    try:
        files = sorted(run.path.iterdir()) if run.path.is_dir() else [run.path]
        stats = [(file.name, file.stat()) for file in files if file.is_file()]
    except OSError:
        return ()
    return tuple((name, stat.st_size, stat.st_mtime_ns) for name, stat in stats)


def remembered(kind: str, run: RunRecord, read: Callable[[], T]) -> T:
    """`read()`, or what it gave when the run's files were as they are now."""
    if _kept is None or run.path is None:
        return read()
    key, now = (kind, str(run.path)), signature(run)
    known = _kept.get(key)
    if known is None or known[0] != now:
        known = (now, read())
        _kept[key] = known
    return known[1]


@contextmanager
def keeping() -> Iterator[None]:
    """Keep what is read inside of this block."""
    global _kept
    before, _kept = _kept, {}
    try:
        yield
    finally:
        _kept = before
