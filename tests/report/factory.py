"""Made-up run folders, with the shape that tracking writes."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

PROMPTS = [
    "Mia has 3 bags with 4 apples each. She gives 5 apples away. How many are left?",
    "A train drives 60 km an hour for 2 hours and then 30 km more. How far does it drive?",
    "Tom reads 12 pages a day. How many pages does he read in a week?",
    "A box holds 6 eggs. How many boxes are needed for 42 eggs?",
    "Lena saves 8 coins a month and spends 3. How many does she have after 5 months?",
    "There are 24 pupils in 4 equal groups. How many pupils are in a group?",
]


def words(value: Any) -> Any:
    """NaN and infinities as the words that records use."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {key: words(child) for key, child in value.items()}
    return value


def digest(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def write_run(
    study: Path,
    loss: str,
    seed: int,
    *,
    metrics: dict[str, Any] | None = None,
    status: str | None = "finished",
    error: dict[str, str] | None = None,
    traceback: str | None = None,
    config: dict[str, Any] | None = None,
    model: str = "tiny",
    dataset: str = "arithmetic",
    folder: str | None = None,
    history: Sequence[dict[str, Any]] | None = None,
    cut: bool = False,
    examples: Sequence[dict[str, Any]] | None = None,
    created: str = "2026-11-30T16:00:00+00:00",
    finished: str = "2026-11-30T16:01:30+00:00",
    age: float = 3600.0,
    now: float = 1_800_000_000.0,
) -> Path:
    """One run folder; `status` None leaves result.json out; `age`: seconds between its last change and `now`."""
    config = {
        "seed": seed,
        "trainer": {"max_steps": 150},
        "loss": {"terms": {loss: {"weight": 1.0}}},
        "paths": {"runs": f"/tmp/{seed}"},
        **(config or {}),
    }
    settings = {key: value for key, value in config.items() if key not in ("seed", "paths")}
    group = digest(loss, model, dataset, settings)
    run_id = digest(group, seed)
    safe = "".join(c if c.isalnum() or c in "-_" else "-" for c in loss)
    path = study / (folder or f"{safe}-{model}-{dataset}-s{seed}-{run_id}")
    path.mkdir(parents=True)
    record = {
        "schema": 1, "id": run_id, "group": group, "name": f"{loss}-{model}-{dataset}-s{seed}", "study": study.name,
        "loss": loss, "model": model, "dataset": dataset, "seed": seed, "attempt": 1, "created": created,
        "config": config, "versions": {"lossbench": "0.1.0", "torch": "2.13.0"},
        "git": {"commit": "0123456789abcdef0123", "dirty": False}, "host": "secret-host", "pid": 1, "wandb": None,
    }  # fmt: skip
    (path / "run.json").write_text(json.dumps(words(record)))
    if history is None:
        history = [
            {
                "step": step,
                "time": step / 10,
                "train/cross_entropy": 2.0 / step + seed / 100,
                "val/nll": 1.5 / step + seed / 50,
            }
            for step in range(10, 160, 10)
        ]
    lines = "".join(json.dumps(words(row)) + "\n" for row in history)
    (path / "metrics.jsonl").write_text(lines[:-9] if cut else lines)
    if traceback is not None:
        (path / "error.txt").write_text(traceback)
    if examples is not None:
        import pyarrow
        import pyarrow.parquet

        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(list(examples)), path / "examples.parquet")
    if status is not None:
        result = {
            "schema": 1, "id": run_id, "status": status, "error": error, "metrics": metrics or {}, "finished": finished,
            "checkpoint": {"step": 150, "criterion": "val/nll", "value": 0.01} if status == "finished" else None,
        }  # fmt: skip
        (path / "result.json").write_text(json.dumps(words(result)))
    for file in path.iterdir():
        os.utime(file, (now - age, now - age))
    return path


def write_plan(study: Path, losses: Sequence[str], seeds: Sequence[int], **extra: Any) -> None:
    """The sweep.json of a grid whose runs have default settings; ids are those of `write_run`."""
    runs = []
    for loss in losses:
        for seed in seeds:
            settings = {"trainer": {"max_steps": 150}, "loss": {"terms": {loss: {"weight": 1.0}}}}
            run_id = digest(digest(loss, "tiny", "arithmetic", settings), seed)
            run = {"id": run_id, "name": f"{loss}-tiny-arithmetic-s{seed}", "loss": loss, "model": "tiny"}
            runs.append({**run, "dataset": "arithmetic", "seed": seed})
    study.mkdir(parents=True, exist_ok=True)
    (study / "sweep.json").write_text(json.dumps({"schema": 1, "runs": runs, **extra}))


def answers(quality: int, hostile: str = "") -> list[dict[str, Any]]:
    """Examples of a run whose model gets the first `quality` prompts right."""
    rows = []
    for number, prompt in enumerate(PROMPTS):
        right = number < quality
        rows.append(
            {
                "id": f"test-{number}", "split": "test", "prompt": prompt, "gold": str(7 + number),
                "completion": f"Let us count. <<3*4={12 + number}>>{hostile}\n#### {7 + number if right else 99}",
                "prediction": str(7 + number if right else 99), "em": right, "nll_sum": 3.5, "n_tokens": 20,
            }
        )  # fmt: skip
    return rows
