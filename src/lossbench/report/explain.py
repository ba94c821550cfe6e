"""`--explain CELL`: the runs behind one number of the report, and how it was made of them."""

from __future__ import annotations

from collections.abc import Sequence

from lossbench.errors import ConfigError, nearest
from lossbench.report.findings import difference_text
from lossbench.report.formatting import heading, number, p_equals, p_value
from lossbench.report.records import RunRecord
from lossbench.report.table import Cell, Row, Table, is_usable


def explain(tables: Sequence[Table], asked: str) -> str:
    """Text for the terminal.

    Args:
        tables: of the report.
        asked: `LOSS:METRIC`, or `LOSS:METRIC:MODEL:DATASET` for one of several tables. A loss is named as in the table.

    Raises:
        ConfigError: there is no such cell.
    """
    loss, _, rest = asked.partition(":")
    metric, _, setting = rest.partition(":")
    if not loss or not metric:
        raise ConfigError(f"--explain {asked!r} names no cell. Write LOSS:METRIC, such as focal:test/em.")
    chosen = [table for table in tables if setting in ("", f"{table.model}:{table.dataset}")]
    if not chosen:
        known = [f"{table.model}:{table.dataset}" for table in tables]
        raise ConfigError(f"--explain: there is no table {setting!r}.{nearest(setting, known)}")
    found = [
        _cell(table, row, row.cells[place])
        for table in chosen
        for row in table.rows
        if row.label == loss
        for place, column in enumerate(table.metrics)
        if column.name == metric
    ]
    if found:
        return "\n".join(found)
    labels = sorted({row.label for table in chosen for row in table.rows})
    if loss not in labels:
        raise ConfigError(f"--explain: there is no row {loss!r}.{nearest(loss, labels)}")
    columns = sorted({column.name for table in chosen for column in table.metrics})
    raise ConfigError(f"--explain: the row {loss!r} has no column {metric!r}.{nearest(metric, columns)}")


def _cell(table: Table, row: Row, cell: Cell) -> str:
    metric = cell.metric
    lines = [f"{row.label}, {heading(metric)} ({metric.name}), {table.title}"]
    used = dict(cell.values)
    for run in row.variant.runs:
        value = run.metrics.get(metric.name)
        fate = "used" if run.seed in used and is_usable(run) else f"not used: {_why(run, cell)}"
        shown = "-" if value is None else repr(value)
        lines.append(f"  seed {'?' if run.seed is None else run.seed}: {shown:<22} {fate}  [{run.id}] {_where(run)}")
    if cell.mean is None:
        lines.append(f"No value: {cell.absence or 'no run'}.")
        return "\n".join(lines) + "\n"
    kind = "exp of the mean of the logarithms" if metric.is_log_mean else "mean"
    lines.append(f"{kind} of {cell.n}: {cell.mean!r}, printed as {number(cell.mean, metric)} {metric.unit}".rstrip())
    if cell.sd is None:
        lines.append("One seed has no deviation, no interval and no mark.")
    else:
        lines.append(f"standard deviation (n - 1): {cell.sd!r}; 95 % t interval: {cell.low!r} to {cell.high!r}")
    if cell.mark:
        lines.append(f"Marked as {cell.mark} of its column, by the printed mean.")
    lines += _comparison(cell)
    return "\n".join(lines) + "\n"


def _comparison(cell: Cell) -> list[str]:
    if cell.comparison is None:
        return []
    found = cell.comparison.difference
    kind = "ratio" if cell.metric.is_log_mean else "difference"
    size = f"{found.n[0]} and {found.n[1]} seeds" if isinstance(found.n, tuple) else f"{found.n} pairs of seeds"
    text = f"{kind} to {cell.comparison.baseline}: {difference_text(found, cell.metric)}, {size}"
    if found.p is None:
        return [f"{text}; no test: {found.note}."]
    return [
        f"{text}; {found.method}, p {p_equals(found.p)}, after Holm over the column {p_value(cell.comparison.p_holm)}."
    ]


def _why(run: RunRecord, cell: Cell) -> str:
    if not is_usable(run):
        return str(run.state)
    if run.seed is None:
        return "its seed is not known"
    value = run.metrics.get(cell.metric.name)
    return "not recorded" if value is None else "not a possible value"


def _where(run: RunRecord) -> str:
    return run.location or "not found"
