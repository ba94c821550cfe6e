"""What a service said of its runs, kept between reports: runs that did not change are not asked for again."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lossbench.report.numbers import read_json_object

FORMAT = 1  # to be raised whenever the fields of a run change


def read(folder: Path | None, service: str) -> dict[str, dict[str, Any]]:
    """Runs by id; empty where nothing is kept, or what is kept is damaged or of another format."""
    if folder is None:
        return {}
    kept, _ = read_json_object(_file(folder, service))
    if not kept or kept.get("format") != FORMAT or not isinstance(runs := kept.get("runs"), dict):
        return {}
    return {run_id: run for run_id, run in runs.items() if isinstance(run, dict)}


def write(folder: Path | None, service: str, runs: Mapping[str, Mapping[str, Any]]) -> None:
    """Keep `runs` under the name of the service and its project, for this user's eyes. No disk space stops nobody."""
    if folder is None:
        return
    file = _file(folder, service)
    aside = file.with_name(f".{file.name}.{os.getpid()}.tmp")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with open(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as out:
            json.dump({"format": FORMAT, "service": service, "runs": runs}, out)
        aside.replace(file)
    except (OSError, ValueError, TypeError):
        aside.unlink(missing_ok=True)


def _file(folder: Path, service: str) -> Path:
    return folder / f"wandb-{hashlib.sha256(service.encode()).hexdigest()[:16]}.json"
