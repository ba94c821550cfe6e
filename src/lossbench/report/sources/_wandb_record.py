"""A run of wandb, from its log or from its service, as a `RunRecord`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lossbench.report.numbers import as_number, flatten, one_line
from lossbench.report.records import UNKNOWN, RunRecord
from lossbench.report.sources._fields import group_of, numbers_of, text, versions_of, whole

# wandb keeps the last logged value of every key in the summary, beside what a run says of itself at its end. These
# belong to training or to wandb, and no result of a run has them.
NO_RESULT = ("_", "train/", "trainer/", "ckpt/", "system/", "lossbench/")
STATUS = "lossbench/status"  # in the summary: how the run ended, in the words of a run record
STEP = "trainer/global_step"
PER_ATTEMPT = frozenset({"attempt", "created", "versions", "git", "host", "pid", "wandb", "_wandb"})


def record_of(
    id: str,
    config: Mapping[str, Any],
    summary: Mapping[str, Any],
    *,
    name: str = "",
    project: str = "",
    group: str = "",
    is_finished: bool,
    problems: list[str],
) -> RunRecord:
    """What configuration and summary tell; who calls adds the state, the times and the place.

    A run that lossbench logged has its identity in its configuration. Of any other run `loss`, `model`, `dataset` and
    `seed` count if they are there, as text or as a section with a `name`.
    """
    own = {key: value for key, value in config.items() if key != "_wandb"}
    nested = own.get("config")
    settings = nested if isinstance(nested, dict) else own
    flat = flatten(settings)
    loss, model, dataset = (_name(own, key, problems) or UNKNOWN for key in ("loss", "model", "dataset"))
    results = {k: v for k, v in summary.items() if not k.startswith(NO_RESULT) and not _is_media(v)}
    numbers = numbers_of(results, problems if is_finished else [])
    last = {one_line(k): n for k, v in summary.items() if not k.startswith("_") and (n := as_number(v)) is not None}
    return RunRecord(
        id=one_line(id),
        name=text(own, "name", problems) or one_line(name) or one_line(id),
        study=text(own, "study", problems) or one_line(project),
        group=text(own, "group", problems) or one_line(group) or group_of(loss, model, dataset, flat),
        loss=loss,
        model=model,
        dataset=dataset,
        seed=whole(own if "seed" in own else settings, "seed", problems),
        attempt=whole(own, "attempt", problems) or 1,
        created=text(own, "created", problems),
        last_step=whole(summary, STEP if STEP in summary else "_step", []),
        checkpoint_step=whole(summary, "ckpt/step", problems),
        checkpoint_criterion=text(summary, "ckpt/criterion", problems),
        config=flat,
        metrics=numbers if is_finished else {},
        last_values={} if is_finished else last,
        versions=versions_of(own),
        problems=tuple(problems),
    )


def _is_media(value: object) -> bool:
    """True for tables, images and histograms, which wandb puts in the summary as objects with a `_type`."""
    return isinstance(value, dict) and "_type" in value


def same_configuration(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """True if two attempts of a run were configured alike, whatever machine and time they ran at."""
    return _without_attempt(one) == _without_attempt(other)


def _without_attempt(config: Mapping[str, Any]) -> dict[str, Any]:
    kept = {key: value for key, value in config.items() if key not in PER_ATTEMPT}
    return flatten({k: v for k, v in flatten(kept).items() if not k.startswith(("config.paths", "config.tracking"))})


def _name(config: Mapping[str, Any], key: str, problems: list[str]) -> str | None:
    value = config.get(key)
    if isinstance(value, dict):
        return text(value, "name", problems)
    return text(config, key, problems)
