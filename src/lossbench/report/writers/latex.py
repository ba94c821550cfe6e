r"""LaTeX with booktabs: `tables/*.tex` to \input into a paper, and `report.tex`, a whole document that inputs them.

Everything from runs is escaped. Characters beyond ASCII that a plain pdfLaTeX does not know are spelled as their code
point, so that every report compiles with every engine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lossbench.report import notes, twins
from lossbench.report.findings import estimate_text, interval_text
from lossbench.report.formatting import heading, number, p_value, slugs
from lossbench.report.metrics import Metric
from lossbench.report.table import Cell, Row, Table

if TYPE_CHECKING:
    from lossbench.report.build import Report

_SPECIAL = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#", "_": r"\_", "%": r"\%",
    "^": r"\textasciicircum{}", "~": r"\textasciitilde{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "|": r"\textbar{}", '"': r"\textquotedbl{}", "`": r"\textasciigrave{}", "[": "{[}", "]": "{]}",
    "±": r"$\pm$", "×": r"$\times$", "−": r"$-$", "↑": r"$\uparrow$", "↓": r"$\downarrow$", "—": "---", "–": "--",
    "≤": r"$\leq$", "≥": r"$\geq$", "…": r"\ldots{}", "Δ": r"$\Delta$", "·": r"$\cdot$", "√": r"$\surd$",
    "▲": r"$^{+}$", "▼": r"$^{-}$", "→": r"$\rightarrow$", "’": "'", "\u00a0": "~",
}  # fmt: skip


def escape(text: str) -> str:
    """Text that LaTeX prints as it is, on one line."""
    return "".join(_character(c) for c in " ".join(text.split()))


def _character(c: str) -> str:
    if c in _SPECIAL:
        return _SPECIAL[c]
    return c if c.isascii() and c.isprintable() else rf"\texttt{{U+{ord(c):04X}}}"


def write(report: Report) -> dict[str, str]:
    """A file a table, its differences beside it, and the document."""
    names = slugs([table.title for table in report.tables])
    files: dict[str, str] = {}
    body: list[str] = []
    for name, table in zip(names, report.tables, strict=True):
        files[f"tables/{name}.tex"] = _results(table)
        body += [*_float(f"tables/{name}.tex", _caption(table), f"tab:{name}")]
        differences = _differences(table)
        if differences:
            files[f"tables/{name}-differences.tex"] = differences
            said = f"Differences to {escape(table.baseline or '')}, {escape(table.title)}, with 95\\,\\% t intervals."
            body += [*_float(f"tables/{name}-differences.tex", said, f"tab:{name}-differences")]
        body += [f"{escape(twins.sentence(labels))}\n" for labels in twins.twins(table)]
    files["report.tex"] = _document(report, body)
    return files


def _document(report: Report, body: list[str]) -> str:
    lines = [
        "% Written by lossbench. Compile in this folder: pdflatex report.tex",
        r"\documentclass{article}",
        r"\usepackage[T1]{fontenc}",
        r"\usepackage[utf8]{inputenc}",
        r"\usepackage{textcomp}",
        r"\usepackage{booktabs}",
        r"\usepackage[margin=2cm]{geometry}",
        r"\begin{document}",
        rf"\section*{{{escape(', '.join(report.studies) or 'lossbench')}}}",
        *body,
        r"\subsection*{Method}",
        r"\begin{itemize}",
        *(rf"\item {escape(note)}" for note in notes.method(report)),
        r"\end{itemize}",
        r"\end{document}",
    ]
    return "\n".join(lines) + "\n"


def _float(file: str, caption: str, label: str) -> list[str]:
    return [
        r"\begin{table}[htbp]\centering\small",
        rf"\caption{{{caption}}}\label{{{label}}}",
        rf"\input{{{file}}}",
        r"\end{table}",
    ]


def _caption(table: Table) -> str:
    return (
        f"{escape(table.title)}: mean $\\pm$ standard deviation over seeds. Bold is best, underlined second, among "
        "losses with at least two seeds; $^{+}$ and $^{-}$ are better and worse than "
        f"{escape(table.baseline or 'the baseline')} (Holm-adjusted $p < 0.05$)."
    )


def _results(table: Table) -> str:
    header = ["Loss", "Seeds", *map(_heading, table.metrics)]
    rows = [[escape(row.label), escape(row.coverage), *(_cell(row, cell) for cell in row.cells)] for row in table.rows]
    return _tabular("ll" + "r" * len(table.metrics), header, rows)


def _heading(metric: Metric) -> str:
    arrow = {"higher": r" $\uparrow$", "lower": r" $\downarrow$", None: ""}[metric.direction]
    return escape(heading(metric)) + arrow


def _tabular(columns: str, header: list[str], rows: list[list[str]]) -> str:
    lines = [
        rf"\begin{{tabular}}{{{columns}}}",
        r"\toprule",
        " & ".join(header) + r" \\",
        r"\midrule",
        *(" & ".join(row) + r" \\" for row in rows),
        r"\bottomrule",
        r"\end{tabular}",
    ]
    return "\n".join(lines) + "\n"


def _cell(row: Row, cell: Cell) -> str:
    if cell.mean is None:
        return rf"--- \textit{{({escape(cell.absence)})}}" if cell.absence else "---"
    mean = _math(number(cell.mean, cell.metric))
    text = {"best": rf"$\mathbf{{{mean}}}$", "second": rf"\underline{{${mean}$}}", None: f"${mean}$"}[cell.mark]
    if cell.sd is not None:
        text += rf" $\pm$ ${_math(number(cell.sd, cell.metric))}$"
    if cell.comparison and cell.comparison.verdict:
        text += "$^{+}$" if cell.comparison.verdict == "better" else "$^{-}$"
    note = row.note(cell)
    return rf"{text} \textit{{({escape(note)})}}" if note else text


def _math(value: str) -> str:
    """A number for math mode: `1.2e-05` as a power of ten."""
    mantissa, e, exponent = value.partition("e")
    return rf"{mantissa} \cdot 10^{{{int(exponent)}}}" if e and exponent.lstrip("+-").isdigit() else value


def _differences(table: Table) -> str:
    rows: list[list[str]] = []
    for column, metric in enumerate(table.metrics):
        if not metric.is_ranked:
            continue
        for row in table.rows:
            comparison = row.cells[column].comparison
            if comparison is None:
                continue
            found = comparison.difference
            size = f"{found.n[0]} and {found.n[1]} seeds" if isinstance(found.n, tuple) else f"{found.n} pairs"
            rows.append(
                [
                    escape(heading(metric)),
                    escape(row.label),
                    escape(estimate_text(found, metric)),
                    escape(interval_text(found, metric) or "n/a"),
                    escape(p_value(comparison.p_holm) or "n/a"),
                    escape(f"{found.note or found.method}, {size}"),
                ]
            )
    header = ["Metric", "Loss", r"$\Delta$ or ratio", r"95\,\% interval", "$p$ (Holm)", "Test"]
    return _tabular("llrrrl", header, rows) if rows else ""
