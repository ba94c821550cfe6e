"""`report.json`: every number of the report with its n, p and state, for programs. Logged units, strict JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from lossbench.report import twins
from lossbench.report.checkpoints import CheckpointPair
from lossbench.report.collect import state_counts
from lossbench.report.costs import of_table, spent
from lossbench.report.numbers import as_json
from lossbench.report.ranks import Ranking
from lossbench.report.records import RunRecord
from lossbench.report.table import Cell

if TYPE_CHECKING:
    from lossbench.report.build import Report

SCHEMA = 1


def write(report: Report) -> dict[str, str]:
    """One file."""
    tree = {
        "schema": SCHEMA,
        "studies": report.studies,
        "newest": report.newest,
        "expected": report.expected,
        "has_plan": report.collection.has_plan,
        "states": {str(state): count for state, count in state_counts(report.records).items()},
        "incomplete": list(report.collection.incomplete),
        "spent": _spent(report.records),
        "tables": [_table(report, index) for index in range(len(report.tables))],
        "rankings": [_ranking(ranking) for ranking in report.rankings],
        "paper": asdict(report.paper) if report.paper else None,
        "runs": [_run(record) for record in report.records],
        "problems": [{"where": where, "problem": problem} for where, problem in report.problems],
    }
    return {"report.json": _text(tree)}


def _text(tree: dict[str, Any]) -> str:
    """A line a key, and a line an entry of a list: short differences, and several times as fast as indented JSON."""

    def line(value: Any) -> str:
        return json.dumps(value, allow_nan=False, ensure_ascii=False)

    parts = []
    for key, value in tree.items():
        entries = ",\n".join(map(line, value)) if isinstance(value, list) else ""
        parts.append(f"{line(key)}: [\n{entries}\n]" if entries else f"{line(key)}: {line(value)}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _table(report: Report, index: int) -> dict[str, Any]:
    table = report.tables[index]
    return {
        "model": table.model,
        "dataset": table.dataset,
        "baseline": table.baseline,
        "metrics": [
            {
                "name": metric.name,
                "label": metric.label,
                "direction": metric.direction,
                "printed_scale": metric.scale,
                "unit": metric.unit,
                "mean_of_logs": metric.is_log_mean,
            }
            for metric in table.metrics
        ],
        "rows": [
            {
                "loss": row.label,
                "is_baseline": row.is_baseline,
                "differs": [{"key": k, "first": first, "here": here} for k, first, here in row.variant.differs],
                "runs": [run.id for run in row.variant.runs],
                "cells": {cell.metric.name: _cell(cell) for cell in row.cells},
            }
            for row in table.rows
        ],
        "spent": _spent(of_table(report.records, table)),
        "same_gradient": [list(labels) for labels in twins.twins(table)],
        "checkpoint_pairs": [_pair(pair) for pair in (report.pairs[index] if report.pairs else ())],
        "reliability": [
            {**vars(curve), "bins": [vars(part) for part in curve.bins]}
            for curve in (report.reliability[index] if report.reliability else ())
        ],
    }


def _spent(records: Sequence[RunRecord]) -> dict[str, Any] | None:
    """Hours of all runs, and under `unused_` of those in no mean."""
    found = spent(records)
    return None if found is None else asdict(found)


def _pair(pair: CheckpointPair) -> dict[str, Any]:
    """Differences are this loss minus the baseline, for these two checkpoints only."""
    tests = {name: None if (found := getattr(pair, name)) is None else vars(found) for name in ("em", "nll")}
    return {key: value for key, value in {**vars(pair), **tests}.items() if key != "index"}


def _ranking(ranking: Ranking) -> dict[str, Any]:
    return {
        "metric": ranking.metric.name,
        "columns": list(ranking.columns),
        "losses": [asdict(loss) for loss in ranking.losses],
        "left_out": list(ranking.left_out),
        "friedman": None if ranking.p is None else {"chi_square": ranking.chi_square, "p": ranking.p},
        "critical_difference": ranking.critical_difference,
        "groups": [list(group) for group in ranking.groups],
    }


def _cell(cell: Cell) -> dict[str, Any]:
    comparison = cell.comparison
    return {
        "n": cell.n,
        "expected": cell.expected,
        "absent": cell.absent,
        "mean": cell.mean,
        "sd": cell.sd,
        "interval": None if cell.low is None else [cell.low, cell.high],
        "mark": cell.mark,
        "rank": cell.rank,
        "values": {str(seed): value for seed, value in cell.values},
        "provisional": {str(seed): value for seed, value in cell.provisional},
        "comparison": None
        if comparison is None
        else {
            "baseline": comparison.baseline,
            "kind": "ratio" if cell.metric.is_log_mean else "difference",
            "estimate": comparison.difference.estimate,
            "interval": None
            if comparison.difference.low is None
            else [comparison.difference.low, comparison.difference.high],
            "relative": comparison.relative,
            "p": comparison.difference.p,
            "p_holm": comparison.p_holm,
            "test": comparison.difference.method,
            "n": comparison.difference.n,
            "note": comparison.difference.note,
            "verdict": comparison.verdict,
        },
    }


def _run(record: RunRecord) -> dict[str, Any]:
    return {
        "id": record.id,
        "group": record.group,
        "name": record.name,
        "study": record.study,
        "loss": record.loss,
        "model": record.model,
        "dataset": record.dataset,
        "seed": record.seed,
        "state": str(record.state),
        "attempt": record.attempt,
        "created": record.created,
        "finished": record.finished,
        "seconds": as_json(record.duration),
        "last_step": record.last_step,
        "checkpoint_step": record.checkpoint_step,
        "error": record.error,
        "source": record.source,
        "location": record.location,
        "url": record.url,
        "metrics": {name: as_json(value) for name, value in sorted(record.metrics.items())},
    }
