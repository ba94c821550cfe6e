"""Rows of a table: runs that differ in nothing but the seed. One loss with several settings gives several rows."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from lossbench.errors import ConfigError, nearest
from lossbench.report.numbers import timestamp
from lossbench.report.records import UNKNOWN, RunRecord, State

# What tuning on equal terms notes in sweep.json: the best of so many trials, or the default which was the best of them.
TUNED = re.compile(r"(tuned|untuned-is-best):([1-9][0-9]*)")
# Keys that say where and how a run was kept, never what it computed.
NOT_SETTINGS = frozenset({"seed", "study", "name", "paths", "tracking", "hydra", "wandb"})


@dataclass(frozen=True)
class Variant:
    """One loss with one set of settings, on one model and dataset.

    Attributes:
        label: the loss's name, with the values of `--group-by` in brackets; `name#2`, `name#3` ... for further settings
            of the same name, oldest first; with `(tuned, 8 trials)` for the best of so many trials on validation, and
            `(default, best of 8 trials)` where that is the default setting.
        runs: all its runs but duplicates, by seed; missing ones included.
        differs: (key, value of `name`, value here) of the settings that tell it from the first variant.
        is_tuned: it is the best of a number of trials, be it the default setting or not.
    """

    label: str
    loss: str
    model: str
    dataset: str
    runs: tuple[RunRecord, ...]
    differs: tuple[tuple[str, str, str], ...] = ()
    is_tuned: bool = False

    @cached_property
    def settings(self) -> Mapping[str, Any]:
        """The flat configuration that its runs share, without what is no setting."""
        return settings_of(next((run for run in self.runs if run.config), self.runs[0]))


def settings_of(run: RunRecord) -> dict[str, Any]:
    """The configuration of a run without seed, paths and tracking."""
    return {key: value for key, value in run.config.items() if key.split(".")[0] not in NOT_SETTINGS}


def split_variants(records: Sequence[RunRecord], group_by: Sequence[str] = ()) -> list[Variant]:
    """Variants in order of model, dataset, loss, age. Runs whose loss is not known belong to none.

    Args:
        records: of any state.
        group_by: settings (dotted keys) whose values name the rows beside the loss. Runs that differ in anything else
            stay apart all the same: only seeds are averaged.

    Raises:
        ConfigError: a setting that no run has.
    """
    known = {key for record in records for key in record.config}
    for key in group_by:
        if key not in known:
            raise ConfigError(f"--group-by: no run has the setting {key!r}.{nearest(key, known)}")
    cells: dict[tuple[str, str, str], dict[str, list[RunRecord]]] = defaultdict(lambda: defaultdict(list))
    homeless = []
    for record in records:
        if record.loss == UNKNOWN or record.state is State.DUPLICATE:
            continue
        if not record.group:
            homeless.append(record)  # known from a plan alone: it goes to the first variant of its loss
        else:
            cells[record.model, record.dataset, record.loss][record.group].append(record)
    for record in homeless:
        groups = cells[record.model, record.dataset, record.loss]
        first = min(groups, key=lambda group: _age(group, groups[group]), default="")
        groups[first].append(record)

    variants: list[Variant] = []
    for (model, dataset, loss), groups in sorted(cells.items()):
        # Settings that were chosen by tuning come last, so that the default has the loss's plain name.
        ordered = sorted(groups, key=lambda group: (_tuning(groups[group]) != "", *_age(group, groups[group])))
        seen: dict[str, list[Mapping[str, Any]]] = defaultdict(list)  # settings of the variants of one name
        for group in ordered:
            runs = tuple(sorted(groups[group], key=lambda run: run.sort_key))
            plain, tuning = loss + _suffix(runs, group_by), _tuning(runs)
            name = plain + tuning
            number = len(seen[name]) + 1
            label = name if number == 1 else f"{name}#{number}"
            variant = Variant(label, loss, model, dataset, runs, is_tuned=tuning != "")
            if first_settings := seen[name] or seen.get(plain):
                variant = replace(variant, differs=different_settings(first_settings[0], variant.settings))
            seen[name].append(variant.settings)
            variants.append(variant)
    return variants


def _tuning(runs: Sequence[RunRecord]) -> str:
    """What is added to the name of a setting that tuning chose; empty for any other."""
    found = [match for run in runs for tag in run.tags if (match := TUNED.fullmatch(tag))]
    if not found:
        return ""
    match = max(found, key=lambda match: int(match[2]))
    return f" (tuned, {match[2]} trials)" if match[1] == "tuned" else f" (default, best of {match[2]} trials)"


def _suffix(runs: Sequence[RunRecord], group_by: Sequence[str]) -> str:
    if not group_by:
        return ""
    config: Mapping[str, Any] = next((run.config for run in runs if run.config), {})
    return f" [{', '.join(f'{key}={config.get(key, UNKNOWN)}' for key in group_by)}]"


def different_settings(a: Mapping[str, Any], b: Mapping[str, Any]) -> tuple[tuple[str, str, str], ...]:
    """(key, value in a, value in b) where two flat configurations differ; `absent` for a key that one lacks."""
    rows = []
    for key in sorted(set(a) | set(b)):
        left, right = (str(side[key]) if key in side else "absent" for side in (a, b))
        if left != right:
            rows.append((key, left, right))
    return tuple(rows)


def _age(group: str, runs: Sequence[RunRecord]) -> tuple[float, str]:
    times = [time for run in runs if (time := timestamp(run.created)) is not None]
    return (min(times, default=float("inf")), group)
