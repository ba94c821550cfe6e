"""Runs as lossbench itself records them: `runs/<study>/<name>-<id>/` with run.json, metrics.jsonl, result.json.

A target is a run folder, a study folder, or a folder of studies. Whatever is damaged in it becomes a sentence in
`problems`; nothing here raises because of what a file holds.
"""

from __future__ import annotations

import hashlib
import os
import re
from functools import partial
from pathlib import Path
from typing import Any

from lossbench.report.numbers import as_number, flatten, one_line, read_json_object, timestamp
from lossbench.report.records import UNKNOWN, RunRecord, State
from lossbench.report.sources import DEFAULT, Found, Options
from lossbench.report.sources._evaluations import read_evaluations
from lossbench.report.sources._fields import group_of, numbers_of, short, text, versions_of, whole
from lossbench.report.sources._run_files import last_line, read_attempts, read_examples

PRECEDENCE = 0
IDLE_SECONDS = 600.0  # a run without exit record that is silent for longer has crashed
DEPTH = 4  # folders below the target that are searched
RUN_FILES = frozenset({"run.json", "metrics.jsonl", "result.json"})
SKIPPED_FOLDERS = frozenset({"checkpoints", "wandb", "__pycache__", "multirun"})


def accepts(target: str) -> bool:
    """True for anything that is a folder here (other sources have a scheme, or name a file)."""
    return os.path.isdir(target)


def read(target: str, now: float, options: Options = DEFAULT) -> Found:
    """All run folders and sweep plans below `target`."""
    root = Path(target)
    found = Found(looked_in=str(root))
    base = len(root.parts)
    for folder, subfolders, files in os.walk(root):
        found.files_seen += len(files)
        here = Path(folder)
        if RUN_FILES.intersection(files):
            found.records.append(read_run(here, location=location_of(root, here), now=now))
            subfolders.clear()
            continue
        if "sweep.json" in files:
            _read_plan(here / "sweep.json", root, found)
        too_deep = len(here.parts) - base >= DEPTH
        keep = [] if too_deep else [n for n in subfolders if n not in SKIPPED_FOLDERS and not n.startswith(".")]
        subfolders[:] = sorted(keep)
    return found


def read_run(folder: Path, location: str, now: float) -> RunRecord:
    """The record of one run folder; damaged files become problems, and an unreadable identity the state `invalid`."""
    identity, identity_problem = read_json_object(folder / "run.json")
    result, result_problem = read_json_object(folder / "result.json")
    problems = [problem for problem in (identity_problem, result_problem) if problem]
    if identity is None and identity_problem is None:
        problems.append("run.json is absent: what was run is not known.")
    identity = identity or {}

    config = identity.get("config")
    flat = flatten(config) if isinstance(config, dict) else {}
    run_id = text(identity, "id", problems) or _id_from_name(folder.name)
    state = _state(result, result_problem, folder, now, problems)
    if not identity:
        state = State.INVALID  # nobody can say what its numbers are numbers of
    last, last_values = last_line(folder / "metrics.jsonl", every_key=not state.is_ended)
    checkpoint = (result or {}).get("checkpoint")
    checkpoint = checkpoint if isinstance(checkpoint, dict) else {}
    notes = (result or {}).get("notes")
    problems += [one_line(note) for note in notes if isinstance(note, str)] if isinstance(notes, list) else []
    created = text(identity, "created", problems)
    finished = text(result or {}, "finished", problems)
    loss, model, dataset = (text(identity, key, problems) or UNKNOWN for key in ("loss", "model", "dataset"))

    metrics = _metrics(result, problems) if identity else {}
    evaluations, of_evaluations = read_evaluations(folder, metrics)
    problems += of_evaluations

    return RunRecord(
        id=run_id,
        name=text(identity, "name", problems) or folder.name,
        study=text(identity, "study", problems) or folder.parent.name,
        group=text(identity, "group", problems) or group_of(loss, model, dataset, flat),
        loss=loss,
        model=model,
        dataset=dataset,
        seed=whole(identity, "seed", problems),
        attempt=whole(identity, "attempt", problems) or 1,
        state=state,
        created=created,
        finished=finished,
        duration=_duration(created, finished, last),
        last_step=whole(last, "step", []),
        checkpoint_step=whole(checkpoint, "step", problems),
        checkpoint_criterion=text(checkpoint, "criterion", problems),
        error=_error(result, folder, state),
        config=flat,
        metrics=metrics,
        evaluations=evaluations,
        versions=versions_of(identity),
        source="run folder",
        path=folder,
        location=location,
        problems=tuple(problems),
        last_values=last_values,
        url=_url(identity),
        read_history=partial(read_attempts, folder, still_written=state is State.RUNNING),
        read_examples=partial(read_examples, folder / "examples.parquet"),
    )


def location_of(root: Path, folder: Path) -> str:
    """Relative to the working folder if the target was; else from the target's own name on (no home folders)."""
    if not root.is_absolute() and ".." not in root.parts:
        return folder.as_posix()
    return Path(root.resolve().name, folder.relative_to(root)).as_posix()


def _url(identity: dict[str, Any]) -> str | None:
    wandb = identity.get("wandb")
    url = wandb.get("url") if isinstance(wandb, dict) else None
    return one_line(url) if isinstance(url, str) and url.startswith(("https://", "http://")) else None


def _id_from_name(name: str) -> str:
    match = re.search(r"[0-9a-f]{16}$", name)
    return match.group() if match else hashlib.sha256(name.encode("utf-8", "surrogateescape")).hexdigest()[:16]


def _state(
    result: dict[str, Any] | None, result_problem: str | None, folder: Path, now: float, problems: list[str]
) -> State:
    if result_problem:
        return State.INVALID
    if result is not None:
        status = result.get("status")
        if status in ("finished", "failed", "interrupted"):
            return State(status)
        problems.append(f"result.json has the status {short(status)}; known: finished, failed, interrupted.")
        return State.INVALID
    newest = max((_modified(folder / name) for name in ("metrics.jsonl", "run.json")), default=0.0)
    if now - newest <= IDLE_SECONDS:
        return State.RUNNING
    problems.append("It ended without an exit record (no result.json, silent for more than ten minutes).")
    return State.CRASHED


def _modified(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _duration(created: str | None, finished: str | None, last: dict[str, Any]) -> float | None:
    start, end = timestamp(created), timestamp(finished)
    if start is not None and end is not None and end >= start:
        return end - start
    return as_number(last.get("time"))


def _error(result: dict[str, Any] | None, folder: Path, state: State) -> str | None:
    error = (result or {}).get("error")
    if isinstance(error, dict):
        parts = [str(error[key]) for key in ("type", "message") if error.get(key)]
        if parts:
            return one_line(": ".join(parts))
    if state.is_ended:
        return None
    try:
        lines = (folder / "error.txt").read_text(encoding="utf-8", errors="replace").strip().splitlines()
    except OSError:
        return None
    return one_line(lines[-1].strip()) if lines else None


def _metrics(result: dict[str, Any] | None, problems: list[str]) -> dict[str, float]:
    metrics = (result or {}).get("metrics")
    if metrics is None:
        return {}
    if not isinstance(metrics, dict):
        problems.append(f"`metrics` of result.json is {short(metrics)} where an object is expected; it is ignored.")
        return {}
    return numbers_of(metrics, problems)


def _read_plan(path: Path, root: Path, found: Found) -> None:
    plan, problem = read_json_object(path)
    where = location_of(root, path)
    if problem or plan is None:
        found.problems.append(f"{where}: {problem} What was expected is not known from it.")
        return
    runs = plan.get("runs")
    if not isinstance(runs, list):
        found.problems.append(f"{where}: `runs` is {short(runs)} where a list is expected; the plan is ignored.")
        return
    found.plans_seen += 1
    wrong: list[str] = []
    if (baseline := text(plan, "baseline", wrong)) is not None:
        found.baselines[where] = baseline
    found.problems += [f"{where}: {problem}" for problem in wrong]
    for number, run in enumerate(runs, start=1):
        run_id = run.get("id") if isinstance(run, dict) else None
        if not isinstance(run_id, str):
            found.problems.append(f"{where}: entry {number} has no id; it is ignored.")
            continue
        problems: list[str] = []
        found.expected.append(
            RunRecord(
                id=one_line(run_id),
                name=text(run, "name", problems) or "",
                study=text(run, "study", problems) or path.parent.name,
                group=text(run, "group", problems) or "",
                loss=text(run, "loss", problems) or UNKNOWN,
                model=text(run, "model", problems) or UNKNOWN,
                dataset=text(run, "dataset", problems) or UNKNOWN,
                seed=whole(run, "seed", problems),
                source="plan",
                planned=True,
                tags=_tags(run.get("tags")),
                problems=tuple(f"{where}, entry {number}: {problem}" for problem in problems),
            )
        )


def _tags(given: Any) -> tuple[str, ...]:
    """Words that a plan gives a run: what tuning led to. What is none is left out."""
    return tuple(one_line(tag) for tag in given if isinstance(tag, str)) if isinstance(given, list) else ()
