"""`report.json`: every number of the report with its n, p and state, for programs. Logged units, strict JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from lossbench.report.collect import state_counts
from lossbench.report.numbers import as_json
from lossbench.report.records import RunRecord
from lossbench.report.table import Cell, Table

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
        "tables": [_table(table) for table in report.tables],
        "runs": [_run(record) for record in report.records],
        "problems": [{"where": where, "problem": problem} for where, problem in report.problems],
    }
    return {"report.json": json.dumps(tree, indent=1, allow_nan=False, ensure_ascii=False) + "\n"}


def _table(table: Table) -> dict[str, Any]:
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
        "values": {str(seed): value for seed, value in cell.values},
        "comparison": None
        if comparison is None
        else {
            "baseline": comparison.baseline,
            "kind": "ratio" if cell.metric.is_log_mean else "difference",
            "estimate": comparison.difference.estimate,
            "interval": None
            if comparison.difference.low is None
            else [comparison.difference.low, comparison.difference.high],
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
        "metrics": {name: as_json(value) for name, value in sorted(record.metrics.items())},
    }
