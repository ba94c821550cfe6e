"""What offline logs of wandb said, kept between reports: a log that did not change is not read again."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

from lossbench.report.numbers import read_json_object
from lossbench.report.sources._wandb_format import Damage
from lossbench.report.sources._wandb_log import WandbLog

FORMAT = 1  # to be raised whenever the fields of a log, or what is read of it, change
NAME = "wandb-logs.json"


class LogCache:
    """Logs by path, as they were at a size and time of change. Without a folder nothing is kept."""

    def __init__(self, folder: Path | None) -> None:
        self._file = None if folder is None else folder / NAME
        self._known: dict[str, Any] = {}
        self._seen: dict[str, Any] = {}
        if self._file is not None:
            kept, _ = read_json_object(self._file)
            if kept and kept.get("format") == FORMAT and isinstance(logs := kept.get("logs"), dict):
                self._known = logs

    def read(self, path: Path, read_log: Callable[[Path], WandbLog]) -> WandbLog:
        """`read_log(path)`, or what it gave when the file was as it is now."""
        if self._file is None:
            return read_log(path)
        try:
            stat = path.stat()
        except OSError:
            return read_log(path)
        key, now = os.path.abspath(path), [stat.st_size, stat.st_mtime_ns]
        log = _log(path, self._known.get(key), now)
        if log is None:
            log = read_log(path)
            if log.trouble is None:
                self._seen[key] = {"stat": now, "log": {k: v for k, v in asdict(log).items() if k != "path"}}
        else:
            self._seen[key] = self._known[key]
        return log

    def save(self) -> None:
        """Keep what was read, and what is known of other places, for this user's eyes. No disk space stops nobody."""
        if self._file is None or all(self._known.get(key) == value for key, value in self._seen.items()):
            return
        aside = self._file.with_name(f".{NAME}.{os.getpid()}.tmp")
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            with open(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as out:
                others = {
                    key: value for key, value in self._known.items() if key not in self._seen and os.path.exists(key)
                }
                json.dump({"format": FORMAT, "logs": {**others, **self._seen}}, out)
            aside.replace(self._file)
        except (OSError, ValueError, TypeError):
            with suppress(OSError):
                aside.unlink(missing_ok=True)


def _log(path: Path, kept: Any, now: list[int]) -> WandbLog | None:
    """The log that was kept; None where it is of another time, or damaged."""
    try:
        if kept["stat"] != now or set(kept["log"]) != {field.name for field in fields(WandbLog)} - {"path"}:
            return None
        log = WandbLog(path, **kept["log"])
        return replace(log, damage=[Damage(**damage) for damage in kept["log"]["damage"]])
    except (TypeError, KeyError):
        return None
