"""What `lossbench evaluate` left beside a run: `RUN/evaluations/FINGERPRINT/evaluation.json`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lossbench.evaluation.stored import FOLDER
from lossbench.report.numbers import one_line, read_json_object
from lossbench.report.records import LaterEvaluation
from lossbench.report.sources._fields import numbers_of, short, text

OF_ONE_RUN = frozenset({"model", "checkpoint", "run"})  # facts that differ between runs evaluated alike
WITHOUT_EFFECT = frozenset({"versions"})


def read_evaluations(run: Path, own: Mapping[str, float]) -> tuple[tuple[LaterEvaluation, ...], list[str]]:
    """The evaluations beside a run, by the names of their folders, and sentences on those that cannot be read.

    Args:
        run: the run folder.
        own: the run's own metrics. The evaluation of a model that was not trained is kept in either place; it is not
            repeated.
    """
    try:
        folders = sorted(entry for entry in (run / FOLDER).iterdir() if not entry.name.startswith("."))
    except OSError:
        return (), []
    found, problems = [], []
    for folder in folders:
        where = f"{FOLDER}/{one_line(folder.name)}"
        content, problem = read_json_object(folder / "evaluation.json")
        if problem:
            problems.append(f"{where}: {problem}")
        if content is None:
            continue
        facts, metrics = content.get("facts"), content.get("metrics")
        if not isinstance(facts, dict) or not isinstance(metrics, dict):
            problems.append(f"{where}: `facts` and `metrics` are no objects; it is ignored.")
            continue
        sentences: list[str] = []
        numbers = numbers_of(metrics, sentences)
        created = text(content, "created", sentences)
        problems += [f"{where}: {sentence}" for sentence in sentences]
        if facts.get("checkpoint") is None and numbers and numbers.items() <= own.items():
            continue
        found.append(LaterEvaluation(_subject(facts), _protocol(facts), numbers, created, where))
    return tuple(found), problems


def _subject(facts: Mapping[str, Any]) -> str:
    """What was evaluated, for the names of its metrics: `gsm8k`, `gsm8k+limit=200`, `lm-eval`, `joint`."""
    if "joint" in facts:
        return "joint"
    evaluation = facts.get("evaluation")
    settings = evaluation if isinstance(evaluation, dict) else {}
    dataset = facts.get("dataset")
    name = dataset.get("name") if isinstance(dataset, dict) else None
    subject = "lm-eval" if "harness" in facts else one_line(name if isinstance(name, str) else "unknown")
    given = {"limit": settings.get("limit"), "sample_seed": facts.get("sample_seed")}
    if facts.get("sample_seed") is not None:
        given["temperature"] = facts.get("temperature")
    spelled = (f"{key}={short(value)}" for key, value in given.items() if value is not None)
    return "+".join([subject, *spelled]).replace("/", "-")


def _protocol(facts: Mapping[str, Any]) -> str:
    """All that has to be equal for the numbers of two runs to be compared, as text."""
    kept = {key: value for key, value in facts.items() if key not in OF_ONE_RUN | WITHOUT_EFFECT}
    if isinstance(evaluation := kept.get("evaluation"), dict):
        kept["evaluation"] = {key: value for key, value in evaluation.items() if key != "batch_size"}
    return json.dumps(kept, sort_keys=True)
