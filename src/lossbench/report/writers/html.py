"""`report.html`: one file that needs nothing else, with every text of a run escaped by the template engine."""

from __future__ import annotations

import base64
import hashlib
import re
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lossbench.report import figures, formatting, notes, sparks
from lossbench.report.collect import state_counts
from lossbench.report.findings import estimate_text, findings, interval_text, shown
from lossbench.report.formatting import clipped, counted, number
from lossbench.report.records import State
from lossbench.report.table import Cell, Row, Table

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

    from lossbench.report.build import Report

TEMPLATES = Path(__file__).parent.parent / "templates"
MAX_ERROR = 400
MAX_SEEDS = 5  # whose values a cell's tooltip lists; the runs table has them all
# (glyph, class) of a state; the glyph alone tells states apart, colour only helps.
GLYPHS = {
    State.FINISHED: ("●", "good"),
    State.RUNNING: ("◐", "busy"),
    State.INTERRUPTED: ("◑", "busy"),
    State.FAILED: ("✕", "bad"),
    State.CRASHED: ("✕", "bad"),
    State.INCOMPLETE: ("◒", "warn"),
    State.INVALID: ("!", "bad"),
    State.DUPLICATE: ("=", "quiet"),
    State.MISSING: ("○", "bad"),
}


def write(report: Report) -> dict[str, str]:
    """One file."""
    from markupsafe import Markup

    script = (TEMPLATES / "page.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    page = (
        _environment()
        .get_template("page.html.jinja")
        .render(
            report=report,
            title=", ".join(report.studies) or "lossbench",
            style=Markup((TEMPLATES / "page.css").read_text(encoding="utf-8")),
            script=Markup(script),
            script_hash=digest,
            glyphs=GLYPHS,
            states=state_counts(report.records),
            sections=[_section(report, index) for index in range(len(report.tables))],
            runs=_runs(report),
            problems=_problems(report),
            versions=_versions(report),
            notes=notes.method(report),
        )
    )
    return {"report.html": page}


@cache
def _environment() -> Environment:
    """The template engine; it escapes whatever is not marked as markup by this module."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters.update(
        counted=counted,
        clipped=clipped,
        minus=_minus,
        breakable=_breakable,
        moment=formatting.moment,
        heading=formatting.heading,
        arrow=formatting.arrow,
    )
    return environment


def _minus(text: str) -> str:
    """Typographic minus signs before numbers, and nowhere else (names may hold hyphens)."""
    return re.sub(r"(?<!\w)-(?=\d)", "−", text)


def _breakable(text: str) -> Markup:
    """Escaped text that may break after underscores and slashes."""
    from markupsafe import Markup, escape

    return Markup(str(escape(text)).replace("_", "_<wbr>").replace("/", "/<wbr>"))


def _section(report: Report, index: int) -> dict[str, Any]:
    from markupsafe import Markup

    table = report.tables[index]
    columns = [[row.cells[i] for row in table.rows] for i in range(len(table.metrics))]
    extents = [sparks.seed_range(cells) for cells in columns]
    rows = []
    for position, row in enumerate(table.rows):
        cells = [_cell(row, cell, extents[i]) for i, cell in enumerate(row.cells)]
        rows.append({"row": row, "hue": Markup(figures.hue(position)), "cells": cells})
    drawn = [drawing for module in figures.available() if (drawing := module.draw(report, index)) is not None]
    return {
        "table": table,
        "rows": rows,
        "findings": [(finding, Markup(figures.hue(finding.row or 0))) for finding in findings(table)],
        "differences": [_differences(table, i) for i in range(len(table.metrics)) if table.metrics[i].is_ranked],
        "figures": [(drawing, [Markup(svg) for svg in drawing.drawings]) for drawing in drawn],
        "hues": [Markup(figures.hue(i)) for i in range(len(table.rows))],
        "samples": report.samples[index],
    }


def _cell(row: Row, cell: Cell, extent: tuple[float, float] | None) -> dict[str, Any]:
    from markupsafe import Markup

    metric = cell.metric
    words = []
    if cell.n <= MAX_SEEDS:
        words.append(", ".join(f"seed {seed}: {number(value, metric)}" for seed, value in cell.values))
    if cell.low is not None and cell.high is not None:
        words.append(f"95 % interval {number(cell.low, metric)} to {number(cell.high, metric)}")
    return {
        "cell": cell,
        "note": row.note(cell),
        "mean": number(cell.mean, metric),
        "sd": number(cell.sd, metric) if cell.sd is not None else "",
        "title": _minus("; ".join(words)),
        "dots": Markup(sparks.seed_dots(cell, extent)),
    }


def _differences(table: Table, column: int) -> dict[str, Any]:
    from markupsafe import Markup

    metric = table.metrics[column]
    cells = [row.cells[column] for row in table.rows]
    scale = sparks.forest_scale(cells)
    rows = []
    for index, (row, cell) in enumerate(zip(table.rows, cells, strict=True)):
        if cell.comparison is None:
            continue
        found = cell.comparison.difference
        size = f"{found.n[0]} and {found.n[1]} seeds" if isinstance(found.n, tuple) else f"{found.n} pairs"
        rows.append(
            {
                "label": row.label,
                "hue": Markup(figures.hue(index)),
                "baseline": cell.comparison.baseline,
                "estimate": _minus(estimate_text(found, metric)),
                "interval": _minus(interval_text(found, metric)),
                "p": formatting.p_value(cell.comparison.p_holm),
                "test": f"{found.method}, {size}" if found.p is not None else f"{found.note} ({size})",
                "verdict": cell.comparison.verdict,
                "forest": Markup(sparks.forest(cell, scale)),
            }
        )
    return {
        "metric": metric,
        "rows": rows,
        "reference": shown(cells[0].mean, metric) if table.rows[0].is_baseline else "",
    }


def _runs(report: Report) -> dict[str, Any]:
    """The runs table: columns of all tables' metrics, blank columns left out."""
    metrics = list({metric.name: metric for table in report.tables for metric in table.metrics}.values())
    labels = {(run.id, run.location): variant.label for variant in report.variants for run in variant.runs}
    rows = []
    for record in report.records:
        values = []
        for metric in metrics:
            value = record.metrics.get(metric.name)
            values.append(("", False) if value is None else (_minus(number(value, metric)), not metric.is_valid(value)))
        rows.append((record, labels.get((record.id, record.location), record.loss), values))
    return {
        "metrics": metrics,
        "rows": rows,
        "has_models": len({(record.model, record.dataset) for record in report.records}) > 1,
        "has_studies": len(report.studies) > 1,
    }


def _problems(report: Report) -> list[dict[str, Any]]:
    """Problems and errors by place: those of the whole report first, then run by run."""
    listed = [{"where": "", "state": None, "sentences": list(report.collection.problems)}]
    for record in report.records:
        sentences = [*([record.error] if record.error else []), *record.problems]
        if record.state is State.MISSING:
            sentences.append("Planned, but no run folder was found.")
        where = record.location or record.name or record.id
        listed.append({"where": where, "state": record.state, "sentences": [clipped(s, MAX_ERROR) for s in sentences]})
    return [entry for entry in listed if entry["sentences"]]


def _versions(report: Report) -> list[tuple[str, list[tuple[str, int]]]]:
    """(package, [(version, number of runs)]), so that a mixture of versions shows."""
    counts: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for record in report.records:
        for name, version in record.versions.items():
            counts[name][version] += 1
    first = ("lossbench", "git commit", "torch")
    names = sorted(counts, key=lambda name: (first.index(name) if name in first else len(first), name))
    return [(name, sorted(counts[name].items())) for name in names]
