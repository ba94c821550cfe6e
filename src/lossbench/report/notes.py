"""Method notes: how the numbers of a report were chosen and made. Every writer prints the same sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lossbench.report.formatting import counted, heading
from lossbench.report.records import State
from lossbench.report.statistics import smallest_detectable

if TYPE_CHECKING:
    from lossbench.report.build import Report


def method(report: Report) -> list[str]:
    """Sentences, the same for the same report."""
    metrics = {metric.name: metric for table in report.tables for metric in table.metrics}
    sizes = [cell.n for table in report.tables for row in table.rows for cell in row.cells if cell.n >= 2]
    notes = [_coverage(report), _selection(report)]
    notes += [
        "A cell is the mean over seeds ± the sample standard deviation (n - 1). Only runs that finished count; what "
        "is absent is named in its cell. A single seed has no ± and no mark.",
        "Best is bold and second best underlined, by the printed mean among losses with at least two seeds; equal "
        "prints share a mark. ▲ and ▼ mark a loss that is better or worse than the baseline with a Holm-adjusted p "
        "below 0.05.",
        "Differences to the baseline: Student's paired t over the seeds that both have (at least three), else "
        "Welch's t; two-sided, with 95 % t intervals that are not widened for the number of losses, p adjusted by "
        "Holm within each column. Seeds are the unit: the tests speak about training again with another seed on the "
        "same data, not about other test examples.",
    ]
    if sizes:
        n = max(sizes)
        effect = smallest_detectable(n)
        notes.append(
            f"With {counted(n, 'seed')}, and before any correction, a paired test finds a mean difference only if it "
            f"is at least {effect:.2f} standard deviations of the seed-wise differences; smaller effects stay open."
        )
    if any(metric.is_log_mean for metric in metrics.values()):
        notes.append(
            "Perplexity is averaged as its logarithm (the negative log-likelihood) and shown as exp of that mean; "
            "its ± is the deviation of the seeds' perplexities, and its difference to the baseline is a ratio (1 "
            "means equal)."
        )
    notes += [f"{heading(m)}: {m.description}." for m in metrics.values() if m.description]
    if any(report.panels):
        notes.append(
            "Learning curves: the line is the mean over finished seeds at the steps that all of them logged, the band "
            "(where there is room for it) goes from the lowest to the highest seed; long logs are averaged in blocks "
            "of neighbouring entries."
        )
    if any(report.samples):
        notes.append(
            "Sample generations: evenly spaced test examples in the order of their ids, answered by the first finished "
            "seed of each loss; not chosen by outcome."
        )
    return notes


def _coverage(report: Report) -> str:
    found = sum(record.state is not State.MISSING for record in report.records)
    duplicates = report.collection.count(State.DUPLICATE)
    unplanned = sum(not r.planned for r in report.records if r.state is not State.DUPLICATE)
    if not report.collection.has_plan:
        text = f"No sweep plan was found, so what is missing is not known: these are the {counted(found, 'run')} found."
    else:
        missing = report.collection.count(State.MISSING)
        text = (
            f"The sweep plan expects {counted(report.expected, 'run')}; {report.expected - missing} of them were found."
        )
        if unplanned:
            text += (
                f" {counted(unplanned, 'run')} found beside the plan {'is' if unplanned == 1 else 'are'} shown as well."
            )
    if duplicates:
        text += (
            f" {counted(duplicates, 'duplicate')} left out: of equal group and seed the newest finished run is used."
        )
    return text


def _selection(report: Report) -> str:
    criteria = sorted({r.checkpoint_criterion for r in report.records if r.checkpoint_criterion})
    if not criteria:
        return "The runs do not record which checkpoint their test numbers come from."
    spelled = " or ".join("validation cross-entropy (val/nll)" if c == "val/nll" else c for c in criteria)
    text = f"All test numbers of a run come from one checkpoint, chosen by {spelled}"
    if all(criterion.startswith("val/") for criterion in criteria):
        text += ": on validation data, never on test data or on the training objective"
    return f"{text}."
