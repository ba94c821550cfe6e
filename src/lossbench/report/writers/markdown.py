"""`report.md`: the tables as they go into a README or an issue."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import astuple
from typing import TYPE_CHECKING

from lossbench.report import notes, twins
from lossbench.report.collect import state_counts
from lossbench.report.costs import cost_table
from lossbench.report.findings import estimate_text, findings, interval_text, relative_text
from lossbench.report.formatting import arrow, clipped, heading, moment, number, p_value
from lossbench.report.records import State
from lossbench.report.settings import settings_table
from lossbench.report.table import Cell, Row, Table

if TYPE_CHECKING:
    from lossbench.report.build import Report

NOT_FOUND = defaultdict(str, {State.MISSING: "Planned, but no run folder was found."})
_SPECIAL = re.compile(r"([\\`*_\[\]#|~$])")


def escape(text: str) -> str:
    """Text that Markdown shows as it is, on one line: no markup, no HTML, no table cell boundary."""
    flat = " ".join(text.split())
    flat = flat.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _SPECIAL.sub(r"\\\1", flat)


def write(report: Report) -> dict[str, str]:
    """One file."""
    lines = [f"# {escape(', '.join(report.studies) or 'lossbench')}", ""]
    states = ", ".join(f"{count} {state}" for state, count in state_counts(report.records).items())
    lines += [f"{report.expected} runs expected: {states}. Newest run: {moment(report.newest) or 'unknown time'}.", ""]
    if code := notes.code_versions(report):
        lines += [f"Made with {escape(', '.join(code))}.", ""]
    lines += [f"**Incomplete.** {escape(sentence)}\n" for sentence in report.collection.incomplete]
    for table in report.tables:
        lines += [f"## {escape(table.title)}", ""]
        for finding in findings(table):
            value = f" ({finding.value})" if finding.value else ""
            lines.append(f"- {finding.metric.label}: **{escape(finding.headline)}**{value}. {escape(finding.detail)}")
        lines += ["", *_results(table), ""]
        lines += [f"{escape(twins.sentence(labels))}\n" for labels in twins.twins(table)]
        lines += [*_differences(table), *_costs(report, table), *_settings(table)]
    lines += _rankings(report) + _paper(report)
    lines += _runs_without_result(report)
    if len(report.tables) != 1 and (words := notes.spent_words(report)):
        lines += [f"All settings together. {escape(words)}", ""]
    lines += ["## How to read this", "", *(f"- {escape(note)}" for note in notes.method(report)), ""]
    return {"report.md": "\n".join(lines).replace("\n\n\n", "\n\n")}


def _grid(header: Sequence[str], rows: Iterable[Sequence[str]], right_from: int) -> list[str]:
    rule = ["---" if index < right_from else "---:" for index in range(len(header))]
    return [f"| {' | '.join(row)} |" for row in (header, rule, *rows)]


def _results(table: Table) -> list[str]:
    header = ["loss", "seeds", *(f"{heading(metric)} {arrow(metric)}".strip() for metric in table.metrics)]
    rows = ([_label(row), row.coverage, *(_cell(row, cell) for cell in row.cells)] for row in table.rows)
    return _grid(header, rows, 2)


def _label(row: Row) -> str:
    changes = ", ".join(f"{key} = {clipped(here, 40)}" for key, _, here in row.variant.differs[:4])
    suffix = f" ({escape(changes)})" if changes else ""
    return escape(row.label) + suffix + (" (baseline)" if row.is_baseline else "")


def _cell(row: Row, cell: Cell) -> str:
    if cell.mean is None:
        return f"— ({cell.absence}){_provisional(cell)}"
    text = number(cell.mean, cell.metric)
    text = {"best": f"**{text}**", "second": f"<u>{text}</u>", None: text}[cell.mark]
    if cell.sd is not None:
        text += f" ± {number(cell.sd, cell.metric)}"
    if cell.comparison and cell.comparison.verdict:
        text += " ▲" if cell.comparison.verdict == "better" else " ▼"
    note = row.note(cell)
    return (f"{text} ({note})" if note else text) + _provisional(cell)


def _provisional(cell: Cell) -> str:
    return "".join(f" *seed {seed} so far: {number(value, cell.metric)}*" for seed, value in cell.provisional)


def _settings(table: Table) -> list[str]:
    """Only settings that are not the same in all rows: where there are none, the loss alone differs."""
    found = settings_table(table)
    if found is None or not found.keys:
        return []
    rows = [[escape(label), *map(escape, values)] for label, _, values in found.rows]
    grid = _grid(["loss", *map(escape, found.keys)], rows, 1 + len(found.keys))
    return ["### Settings that differ beside the loss", "", *grid, ""]


def _costs(report: Report, table: Table) -> list[str]:
    lines = []
    if (costs := cost_table(table)) is not None:
        header = ["loss", *(heading(metric) for metric in costs.metrics)]
        rows = [
            [escape(row.label), *(number(m, metric) or "—" for m, metric in zip(row.means, costs.metrics, strict=True))]
            for row in costs.rows
        ]
        lines += ["### Costs, means over finished seeds", "", *_grid(header, rows, 1), ""]
    if words := notes.spent_words(report, table):
        lines += [escape(words), ""]
    return lines


def _rankings(report: Report) -> list[str]:
    lines: list[str] = []
    for ranking in report.rankings:
        rows = [
            [escape(loss.label), f"{loss.mean_rank:.2f}", str(loss.wins), notes.iqm_text(loss, ranking.metric)]
            for loss in ranking.losses
        ]
        header = ["loss", "mean rank", "wins", "interquartile mean of the difference, 95 % interval"]
        words = escape(notes.ranking_words(ranking))
        lines += [f"## Across settings: {ranking.metric.label}", "", *_grid(header, rows, 1), "", words, ""]
    return lines


def _paper(report: Report) -> list[str]:
    paper = report.paper
    if paper is None:
        return []
    header = ["task", "published baseline", "loss", "change", "ours", "baseline", "loss", "change", "source"]
    rows = [[escape(str(value)) for value in astuple(row)] for row in paper.rows]
    words = f"{escape(paper.title)}, {escape(paper.authors)}, <{paper.address}>. {escape(paper.note)}"
    return ["## Beside the paper", "", words, "", *_grid(header, rows, len(header)), ""]


def _differences(table: Table) -> list[str]:
    lines: list[str] = []
    for column, metric in enumerate(table.metrics):
        compared = [(row, row.cells[column]) for row in table.rows if row.cells[column].comparison]
        if not metric.is_ranked or not compared:
            continue
        kind = "Ratio" if metric.is_log_mean else "Difference"
        header = ["loss", f"{kind} in {heading(metric)}", "95 % interval", "relative", "p (Holm)", "test"]
        rows = [_difference(row, cell) for row, cell in compared]
        lines += [f"### {kind} to {escape(table.baseline or '')}: {metric.label}", "", *_grid(header, rows, 1), ""]
    return lines


def _difference(row: Row, cell: Cell) -> list[str]:
    comparison = cell.comparison
    assert comparison is not None
    found = comparison.difference
    p = p_value(comparison.p_holm).replace("<", "&lt;") or "n/a"
    size = f"n = {found.n[0]} and {found.n[1]}" if isinstance(found.n, tuple) else f"{found.n} pairs"
    test = f"{found.note or found.method}, {size}"
    estimate, interval = estimate_text(found, cell.metric), interval_text(found, cell.metric)
    return [escape(row.label), estimate, interval or "n/a", relative_text(comparison) or "n/a", p, test]


def _runs_without_result(report: Report) -> list[str]:
    rows = [
        [
            escape(record.loss),
            "" if record.seed is None else str(record.seed),
            str(record.state),
            escape(clipped(record.error or " ".join(record.problems) or NOT_FOUND[record.state], 300)),
            escape(record.location or record.name or record.id),
        ]
        for record in report.records
        if record.state is not State.FINISHED
    ]
    if not rows:
        return []
    return [
        "## Runs that are not in the means, or not whole",
        "",
        *_grid(["loss", "seed", "state", "why", "where"], rows, 5),
        "",
    ]
