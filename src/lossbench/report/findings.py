"""What the tables say, in sentences that claim no more than the statistics do."""

from __future__ import annotations

from dataclasses import dataclass

from lossbench.report.formatting import counted, fixed, number, p_equals
from lossbench.report.metrics import Metric
from lossbench.report.statistics import Difference
from lossbench.report.table import Cell, Comparison, Table


@dataclass(frozen=True)
class Finding:
    """One sentence pair about one column: what leads, and whether that is more than seed noise."""

    metric: Metric
    headline: str
    value: str
    detail: str
    row: int | None


def findings(table: Table) -> list[Finding]:
    """One finding for each ranked column."""
    return [_finding(table, i) for i, metric in enumerate(table.metrics) if metric.is_ranked and metric.direction]


def _finding(table: Table, column: int) -> Finding:
    metric = table.metrics[column]
    cells = [row.cells[column] for row in table.rows]
    leaders = [i for i, cell in enumerate(cells) if cell.mark == "best"]
    if len(leaders) > 1:
        names = " and ".join(table.rows[i].label for i in leaders)
        cell = cells[leaders[0]]
        return Finding(
            metric, names, shown(cell.mean, metric), "They share the best mean, to the printed digits.", None
        )
    if leaders:
        cell = cells[leaders[0]]
        value = f"{number(cell.mean, metric)} ± {shown(cell.sd, metric)}"
        return Finding(metric, table.rows[leaders[0]].label, value, _detail(table, cells, leaders[0]), leaders[0])
    if sum(cell.n >= 2 for cell in cells) >= 2:
        reason = "The means of all losses print the same; nothing is ranked."
    else:
        reason = "Fewer than two losses have two finished seeds; nothing is ranked."
    return Finding(metric, "no ranking", "", reason, None)


def _detail(table: Table, cells: list[Cell], leader: int) -> str:
    comparison = cells[leader].comparison
    seeds = f"best mean, over {counted(cells[leader].n, 'seed')}"
    if table.rows[leader].is_baseline:
        worse = sum(c.comparison is not None and c.comparison.verdict == "worse" for c in cells)
        count = sum(c.comparison is not None for c in cells)
        rivals = counted(count, "other loss")
        verb = "is" if worse == 1 or count == 1 else "are"
        return f"The baseline has the {seeds}; {worse} of {rivals} {verb} worse by more than seed noise."
    if comparison is None:
        return f"The {seeds}. There is no baseline to compare with."
    if comparison.p_holm is None:
        return f"The {seeds}. Against {comparison.baseline} nothing can be tested: {comparison.difference.note}."
    against = f"against {comparison.baseline} {difference_text(comparison.difference, cells[leader].metric)}"
    if comparison.verdict == "better":
        return f"The {seeds}; {against} (Holm p {p_equals(comparison.p_holm)}): more than seed noise."
    return f"The {seeds}; {against} (Holm p {p_equals(comparison.p_holm)}): seed noise is not excluded."


def shown(value: float | None, metric: Metric) -> str:
    """A value with its unit."""
    unit = {"": "", "%": " %"}.get(metric.unit, f" {metric.unit}")
    return f"{number(value, metric)}{unit}" if value is not None else ""


def estimate_text(difference: Difference, metric: Metric) -> str:
    """`+2.1`, or `×0.93` for a ratio."""
    if metric.is_log_mean:
        return f"×{difference.estimate:.3f}"
    return number(difference.estimate, metric, sign=True)


def interval_text(difference: Difference, metric: Metric) -> str:
    """`[-1.2, +5.4]`; empty where there is no interval."""
    if difference.low is None or difference.high is None:
        return ""
    if metric.is_log_mean:
        return f"[{difference.low:.3f}, {difference.high:.3f}]"
    return f"[{number(difference.low, metric, sign=True)}, {number(difference.high, metric, sign=True)}]"


def relative_text(comparison: Comparison) -> str:
    """`+5.8 %` of the baseline's mean; empty where there is no such share."""
    return "" if comparison.relative is None else f"{fixed(100 * comparison.relative, 1, sign=True)} %"


def difference_text(difference: Difference, metric: Metric) -> str:
    """Estimate and interval."""
    return f"{estimate_text(difference, metric)} {interval_text(difference, metric)}".strip()
