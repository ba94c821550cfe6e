"""`report.html`: one file that needs nothing else, with every text of a run escaped by the template engine."""

from __future__ import annotations

import base64
import hashlib
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lossbench.report import figures, formatting, notes, sparks, twins
from lossbench.report.checkpoints import Bootstrap
from lossbench.report.collect import state_counts
from lossbench.report.costs import cost_table
from lossbench.report.figures._ranks import draw_ranking
from lossbench.report.findings import estimate_text, findings, interval_text, relative_text, shown
from lossbench.report.formatting import clipped, counted, number
from lossbench.report.records import State
from lossbench.report.settings import settings_table
from lossbench.report.table import Cell, Row, Table

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

    from lossbench.report.build import Report

TEMPLATES = Path(__file__).parent.parent / "templates"
MAX_ERROR = 400
MAX_BYTES = 999_000
BYTES_A_CELL = 1450  # of a page that leaves nothing out, all sections together
MAX_GLYPHS = 12
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
    State.CONFLICT: ("!", "bad"),
    State.EMPTY: ("○", "bad"),
    State.DUPLICATE: ("=", "quiet"),
    State.MISSING: ("○", "bad"),
}


def write(report: Report) -> dict[str, str]:
    """One file."""
    return {"report.html": render(report)}


@dataclass(frozen=True)
class Detail:
    """What the page shows of a report; `left_out` says what it does not, for reports that would be too large.

    `share` is about the size of such a page, relative to that of the whole one.
    """

    share: float = 1.0
    tooltips: bool = True
    dots: bool = True
    samples: bool = True
    forests: bool = True
    max_pairs: int = 200
    without: frozenset[str] = frozenset()  # names of figure modules
    left_out: str = ""


_TABLES_HAVE = "the values behind a mean stand in the table of runs and in report.csv alone"
# Tried in this order until the page is small enough.
DETAILS = (
    Detail(),
    Detail(share=0.94, tooltips=False, left_out=_TABLES_HAVE),
    Detail(share=0.85, tooltips=False, dots=False, left_out=f"dots of single seeds are left out; {_TABLES_HAVE}"),
    Detail(
        share=0.75,
        tooltips=False,
        dots=False,
        samples=False,
        max_pairs=0,
        without=frozenset({"reliability"}),
        left_out="dots of single seeds, sample generations, pairs of checkpoints and reliability diagrams are left "
        "out; report.csv, pairs.csv and figures/ have their numbers",
    ),
    Detail(
        share=0.6,
        tooltips=False,
        dots=False,
        samples=False,
        forests=False,
        max_pairs=0,
        without=frozenset({"reliability", "cost_quality"}),
        left_out="all but curves and tables is left out; report.csv, pairs.csv and figures/ have the rest",
    ),
)


def render(report: Report, is_live: bool = False) -> str:
    """The page. With `is_live` it asks the server that it came from whether there is a newer one (`--watch`)."""
    whole = BYTES_A_CELL * sum(len(table.rows) * len(table.metrics) for table in report.tables)
    level = _level(whole, 0)
    while True:
        page = _render(report, is_live, DETAILS[level])
        size = len(page.encode("utf-8"))
        if size <= MAX_BYTES or level == len(DETAILS) - 1:
            return page
        level = _level(size / DETAILS[level].share, level + 1)


def _level(whole: float, first: int) -> int:
    """The first level from `first` on at which a page of `whole` bytes should be small enough; the last if none is."""
    fitting = (level for level in range(first, len(DETAILS)) if whole * DETAILS[level].share <= MAX_BYTES)
    return next(fitting, len(DETAILS) - 1)


def _render(report: Report, is_live: bool, detail: Detail) -> str:
    from markupsafe import Markup

    sections = [_section(report, index, detail) for index in range(len(report.tables))]
    return (
        _environment()
        .get_template("page.html.jinja")
        .render(
            report=report,
            title=", ".join(report.studies) or "lossbench",
            style=_file("page.css"),
            is_live=is_live,
            **_scripts(("page.js", "live.js") if is_live else ("page.js",)),
            glyphs=GLYPHS,
            states=state_counts(report.records),
            detail=detail,
            sections=sections,
            coverage=_coverage(report),
            rankings=[(ranking, Markup(draw_ranking(ranking, figures.series(report)))) for ranking in report.rankings],
            has_provisional=any(cell["provisional"] for s in sections for row in s["rows"] for cell in row["cells"]),
            spent=notes.spent_words(report) if len(sections) > 1 else "",
            runs=_runs(report),
            problems=_problems(report),
            versions=_versions(report),
            notes=notes.method(report),
            code=notes.code_versions(report),
        )
    )


def render_message(text: str) -> str:
    """The page that is served while there is no report."""
    template = _environment().get_template("message.html.jinja")
    return template.render(text=text, style=_file("page.css"), **_scripts(("live.js",)))


def _file(name: str) -> Markup:
    from markupsafe import Markup

    return Markup((TEMPLATES / name).read_text(encoding="utf-8"))


def _scripts(names: Sequence[str]) -> dict[str, Any]:
    """Scripts, and their hashes for the policy that lets no other script run."""
    from markupsafe import Markup

    scripts = [_file(name) for name in names]
    digests = (base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts)
    return {"scripts": scripts, "script_hashes": Markup(" ".join(f"'sha256-{digest}'" for digest in digests))}


def _coverage(report: Report) -> list[tuple[str, list[tuple[list[State], str]]]]:
    """(loss, for each table its runs' states and the same in words); nothing for a single table, which shows them."""
    if len(report.tables) < 2:
        return []
    by_table = [{row.label: row for row in table.rows} for table in report.tables]
    rows = []
    for label in figures.series(report):
        cells: list[tuple[list[State], str]] = []
        for known in by_table:
            row = known.get(label)
            cells.append(([run.state for run in row.variant.runs], row.coverage) if row else ([], ""))
        rows.append((label, cells))
    return rows


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
        printed=number,
        p=formatting.p_value,
        iqm=notes.iqm_text,
        ranking_words=notes.ranking_words,
        bootstrap=_bootstrap,
        glyphs=_glyphs,
        verdict=_verdict,
    )
    return environment


def _glyphs(states: Sequence[State]) -> Markup:
    """A glyph a run, neighbours of one state together."""
    from markupsafe import Markup

    parts = []
    for state, same in groupby(states[:MAX_GLYPHS]):
        glyph, colour = GLYPHS[state]
        count = len(list(same))
        title = "" if state is State.FINISHED else f' title="{state}"'
        parts.append(f'<span class="glyph {colour}"{title}>{glyph * count}</span>')
    return Markup("".join(parts) + ("…" if len(states) > MAX_GLYPHS else ""))


def _verdict(verdict: str) -> Markup:
    """▲ or ▼, spoken as a word."""
    from markupsafe import Markup

    glyph = "▲" if verdict == "better" else "▼"
    return Markup(f'<i class="verdict {verdict}" role="img" aria-label="{verdict}">{glyph}</i>')


def _bootstrap(found: Bootstrap | None, scale: float, digits: int) -> str:
    """`+1.5 [-0.5, +3.5]`; empty for None."""
    if found is None:
        return ""
    estimate, low, high = (
        formatting.fixed(v * scale, digits, sign=True) for v in (found.estimate, found.low, found.high)
    )
    return f"{estimate} [{low}, {high}]"


def _minus(text: str) -> str:
    """Typographic minus signs before numbers, and nowhere else (names may hold hyphens)."""
    return re.sub(r"(?<!\w)-(?=\d)", "−", text)


def _breakable(text: str) -> Markup:
    """Escaped text that may break after underscores and slashes."""
    from markupsafe import Markup, escape

    return Markup(str(escape(text)).replace("_", "_<wbr>").replace("/", "/<wbr>"))


@cache
def _names_on_page() -> frozenset[str]:
    return frozenset(m.__name__.rpartition(".")[2] for m in figures.available() if m.ON_PAGE)


def _section(report: Report, index: int, detail: Detail) -> dict[str, Any]:
    from markupsafe import Markup

    table = report.tables[index]
    columns = [[row.cells[i] for row in table.rows] for i in range(len(table.metrics))]
    extents = [sparks.seed_range(cells) if detail.dots else None for cells in columns]
    rows = []
    for position, row in enumerate(table.rows):
        cells = [_cell(row, cell, extents[i], detail) for i, cell in enumerate(row.cells)]
        states = [run.state for run in row.variant.runs]
        rows.append({"row": row, "hue": Markup(figures.hue(position)), "states": states, "cells": cells})
    on_page = _names_on_page() - detail.without
    drawn = [drawing for name, drawing in report.figures[index].items() if name in on_page]
    costs = cost_table(table)
    pairs = report.pairs[index] if report.pairs and sum(map(len, report.pairs)) <= detail.max_pairs else ()
    return {
        "table": table,
        "rows": rows,
        "findings": [(finding, Markup(figures.hue(finding.row or 0))) for finding in findings(table)],
        "differences": [_differences(table, i) for i in range(len(table.metrics)) if table.metrics[i].is_ranked],
        "figures": [(drawing, [Markup(svg) for svg in drawing.drawings]) for drawing in drawn],
        "legend": tuple(dict.fromkeys(entry for drawing in drawn for entry in drawing.legend)),
        "hues": [Markup(figures.hue(i)) for i in range(len(table.rows))],
        "samples": report.samples[index] if report.samples and detail.samples else (),
        "twins": [twins.sentence(labels) for labels in twins.twins(table)],
        "pairs": list(pairs),
        "costs": costs,
        "spent": notes.spent_words(report, table),
        "has_devices": costs is not None and any(row.devices for row in costs.rows),
        "settings": settings_table(table),
    }


def _cell(row: Row, cell: Cell, extent: tuple[float, float] | None, detail: Detail) -> dict[str, Any]:
    from markupsafe import Markup

    metric = cell.metric
    words = []
    if 1 < cell.n <= MAX_SEEDS:
        seeds, values = zip(*cell.values, strict=True)
        words.append(f"seeds {', '.join(map(str, seeds))}: {', '.join(number(value, metric) for value in values)}")
    elif cell.n == 1:
        words.append(f"seed {cell.values[0][0]}")
    if cell.low is not None and cell.high is not None:
        words.append(f"95 % interval {number(cell.low, metric)} to {number(cell.high, metric)}")
    return {
        "cell": cell,
        "note": row.note(cell),
        "mean": number(cell.mean, metric),
        "sd": number(cell.sd, metric) if cell.sd is not None else "",
        "title": _minus("; ".join(words)) if detail.tooltips else "",
        "dots": Markup(sparks.seed_dots(cell, extent)),
        "provisional": ", ".join(f"seed {seed} so far: {number(value, metric)}" for seed, value in cell.provisional),
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
                "relative": _minus(relative_text(cell.comparison)),
                "interval": _minus(interval_text(found, metric)),
                "p": formatting.p_value(cell.comparison.p_holm),
                "test": f"{found.method}, {size}" if found.p is not None else f"{found.note} ({size})",
                "verdict": cell.comparison.verdict,
                "forest": Markup(sparks.forest(cell, scale)),
            }
        )
    tests = {row["test"] for row in rows}
    return {
        "metric": metric,
        "rows": rows,
        "test": tests.pop() if len(tests) == 1 else "",  # said once where it is the same for all
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
        url = record.url if record.url and record.url.startswith(("https://", "http://")) else ""
        rows.append((record, labels.get((record.id, record.location), record.loss), values, url))
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
