"""MAUVE of several runs in the same buckets: human texts and all runs' samples are clustered together, once a seed.

Scores of different models are comparable only with the same binning, as MAUVE's authors say
(https://github.com/krishnap25/mauve/issues/13). The samples are those that the runs stored; nothing is generated again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from lossbench.data.example import Example
from lossbench.errors import DataError
from lossbench.evaluation import mauve, stored
from lossbench.evaluation.featurizer import Featurizer, load
from lossbench.evaluation.mauve_metrics import Difference, difference
from lossbench.evaluation.mauve_protocol import Cutter, MauveProtocol, Pieces, flat, human_texts, model_texts, regrouped
from lossbench.evaluation.metrics import aggregate

BASELINE = "cross_entropy"
DRAWS = 1000
VIEWS_COMPARED = (None, "continuation")

Row = dict[str, Any]


@dataclass(frozen=True)
class JointResult:
    """What was stored for one run; `difference` to the run of the baseline loss with the same seed and model."""

    run: Path
    folder: Path
    metrics: dict[str, float]
    difference: Difference | None


def evaluate_jointly(
    study: Path,
    *,
    featurizer: str = "lossbench:tiny",
    clustering_seeds: Sequence[int] = (0, 1, 2, 3, 4),
    draws: int | None = None,
    batch_size: int = 64,
) -> list[JointResult]:
    """MAUVE of all runs of a study that stored samples, under one clustering, as `mauve[FEATURIZER,joint]`; each run
    gets an evaluation of its own fingerprint.

    `draws` is the number of bootstrap samples behind an interval (1,000 unless given). Raises `DataError` where fewer
    than two runs stored samples, or where they continue other texts.
    """
    mauve.check_installed()
    runs = {folder: rows for folder in _run_folders(study) if (rows := _rows_with_samples(folder))}
    if len(runs) < 2:
        raise DataError(
            f"{study} holds {len(runs)} runs with samples of a model, and a joint clustering needs two: evaluate them "
            "first (train with evaluation=mauve, or lossbench evaluate RUN --metrics mauve)."
        )
    loaded = load(featurizer)
    made = joint_rows(runs, loaded, clustering_seeds, batch_size)
    identities = {folder: json.loads((folder / "run.json").read_text(encoding="utf-8")) for folder in runs}
    facts = {
        "joint": sorted(identity["id"] for identity in identities.values()),
        "samples": {identities[f]["id"]: stored.fingerprint({"rows": _texts(rows)}) for f, rows in runs.items()},
        "featurizer": _weights(featurizer),
        "clustering_seeds": list(clustering_seeds),
    }
    results = []
    for folder, rows in made.items():
        place = stored.folder_of(folder, stored.fingerprint(facts | {"run": identities[folder]["id"]}))
        known = stored.read(place)
        if known is None:
            against = _baseline_of(folder, identities)
            gap = None if against is None else difference(rows, made[against], draws=draws or DRAWS)
            compared = (
                None if gap is None or against is None else {"baseline": identities[against]["id"], **asdict(gap)}
            )
            created = datetime.now(UTC).isoformat(timespec="seconds")
            metrics = aggregate(rows, rows[0]["split"])
            known = stored.write(place, facts, metrics, rows, created=created, difference=compared)
        results.append(JointResult(folder, place, known["metrics"], _difference(known["difference"])))
    return results


def _difference(known: Mapping[str, Any] | None) -> Difference | None:
    return None if known is None else Difference(known["value"], known["low"], known["high"])


def joint_rows(
    runs: Mapping[Path, Sequence[Row]], featurizer: Featurizer, seeds: Sequence[int], batch_size: int
) -> dict[Path, list[Row]]:
    """For each run the rows that `mauve_metrics` reads, with the buckets that all runs share.

    Human texts take part once; in a run and draw they count where the pair is long enough, as in a run's own MAUVE.
    """
    first = next(iter(runs.values()))
    _check_same_texts(runs)
    shared = {name: first[0][name] for name in ("mauve_protocol", "mauve_tokens")}
    protocol = MauveProtocol(protocol=shared["mauve_protocol"], tokens=shared["mauve_tokens"])
    examples = [Example(row["id"], row["prompt"], row["mauve_target"]) for row in first]
    human = human_texts(examples)
    cutter = Cutter.of(protocol, featurizer, human)
    sides: list[tuple[Path | None, Pieces]] = [(None, cutter.pieces(human, 0))]
    for folder, rows in runs.items():
        for draw in range(len(rows[0]["samples"])):
            texts = model_texts(protocol, examples, [row["samples"][draw] for row in rows])
            sides.append((folder, cutter.pieces(texts, draw)))
    features = [featurizer.features(flat(pieces), batch_size) for _, pieces in sides]
    count = mauve.number_of_buckets(max(len(examples), len(features[0])))
    mauve.check_number_of_texts(len(features[0]), "this study")

    labels: list[list[list[list[int]]]] = [[] for _ in sides]  # by side, seed and example
    for seed in seeds:
        for side, found in enumerate(mauve.clusters([*features[1:], features[0]], count, seed)):
            place = (side + 1) % len(sides)
            labels[place].append(regrouped(found.tolist(), sides[place][1]))
    made: dict[Path, list[Row]] = {}
    for folder, rows in runs.items():
        own = [place for place, (owner, _) in enumerate(sides) if owner == folder]
        made[folder] = [
            {
                **{name: row[name] for name in ("id", "split", "mauve_protocol", "mauve_temperatures")},
                "view": "continuation",
                **_cells(labels, own, number, protocol),
                "mauve_name": f"{protocol.label(featurizer)},joint",
                "mauve_tokens": cutter.length,
                "mauve_buckets": count,
                "mauve_clusterings": len(seeds),
            }
            for number, row in enumerate(rows)
        ]
    return made


def _cells(
    labels: list[list[list[list[int]]]], own: Sequence[int], number: int, protocol: MauveProtocol
) -> dict[str, list[list[int]]]:
    """The buckets of one example of one run, by draw and seed; of a pair both or none."""
    found: dict[str, list[list[int]]] = {"mauve_human": [], "mauve_model": []}
    for place in own:
        for seed in range(len(labels[0])):
            human, model = labels[0][seed][number], labels[place][seed][number]
            if protocol.is_paired and not (human and model):
                human, model = [], []
            found["mauve_human"].append(human)
            found["mauve_model"].append(model)
    return found


def _check_same_texts(runs: Mapping[Path, Sequence[Row]]) -> None:
    (first, wanted), *others = runs.items()
    for folder, rows in others:
        for what, columns in (
            ("texts", ("id", "split", "prompt", "mauve_target")),
            ("a protocol", ("mauve_protocol", "mauve_tokens")),
        ):
            if [[row[c] for c in columns] for row in rows] != [[row[c] for c in columns] for row in wanted]:
                raise DataError(
                    f"{folder.name} and {first.name} do not share {what} for MAUVE, so they cannot be compared: "
                    "evaluate them on the same examples, with the same protocol and featurizer."
                )


def _run_folders(study: Path) -> list[Path]:
    found = sorted(file.parent for file in study.glob("*/run.json"))
    if not found:
        raise DataError(f"{study} holds no run folder: name the folder of a study, such as runs/demo.")
    return found


def _rows_with_samples(run: Path) -> list[Row]:
    """The rows of the run's own evaluation, or else of the last one made afterwards, in the order of their ids."""
    later = sorted(run.glob("evaluations/*/evaluation.json"), key=lambda file: file.stat().st_mtime, reverse=True)
    for file in (run / "result.json", *later):
        table = file.with_name("examples.parquet")
        if file.is_file() and table.is_file():
            rows = [row for row in stored.read_rows(table) if row.get("samples") and row.get("view") in VIEWS_COMPARED]
            if rows:
                return sorted(rows, key=lambda row: row["id"])
    return []


def _baseline_of(run: Path, identities: Mapping[Path, Mapping[str, Any]]) -> Path | None:
    own = identities[run]
    if own["loss"] == BASELINE:
        return None
    same = ("model", "dataset", "seed")
    fitting = (
        folder
        for folder, other in identities.items()
        if other["loss"] == BASELINE and all(other[key] == own[key] for key in same)
    )
    return next(fitting, None)


def _texts(rows: Sequence[Row]) -> list[Any]:
    return [[row["id"], row["prompt"], row["mauve_target"], list(row["samples"])] for row in rows]


def _weights(featurizer: str) -> Any:
    from lossbench.identity import content
    from lossbench.models.locate import folder_of

    folder = folder_of(featurizer)
    return content(folder) if folder else featurizer
