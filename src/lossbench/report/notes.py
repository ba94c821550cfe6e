"""Method notes: how the numbers of a report were chosen and made. Every writer prints the same sentences."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from lossbench.report.costs import of_table, spent
from lossbench.report.formatting import counted, heading, number, p_equals
from lossbench.report.metrics import Metric
from lossbench.report.ranks import RankedLoss, Ranking
from lossbench.report.records import State
from lossbench.report.statistics import smallest_detectable

if TYPE_CHECKING:
    from lossbench.report.build import Report
    from lossbench.report.table import Table


def method(report: Report) -> list[str]:
    """Sentences, the same for the same report."""
    metrics = {metric.name: metric for table in report.tables for metric in table.metrics}
    sizes = [cell.n for table in report.tables for row in table.rows for cell in row.cells if cell.n >= 2]
    notes = [_coverage(report), _selection(report), _rows(report)]
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
    if any(report.pairs):
        notes.append(
            "Checkpoint by checkpoint: exact McNemar test of exact match; percentile bootstrap (2,000 resamples) and "
            "sign-flip test (4,999 flips) over examples, both with a fixed seed. They are about the trained models at "
            "hand: they are no evidence on a loss, enter no mark, and are not pooled over seeds."
        )
    if report.rankings:
        notes.append(
            "Across settings: ranks of the means within each model and dataset, Friedman's test with correction for "
            "ties, and from five settings on Nemenyi's critical difference at the 5 % level. The interquartile mean of "
            "the seed-wise differences leaves out the smallest and the largest quarter of all settings together; its "
            "95 % interval is a stratified bootstrap (2,000 resamples of the seeds within each setting, with a fixed "
            "seed)."
        )
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


def ranking_words(ranking: Ranking) -> str:
    """What the ranking of one metric says, and what it cannot say."""
    count = len(ranking.columns)
    words = [f"{counted(len(ranking.losses), 'loss')} over {counted(count, 'setting')}."]
    if ranking.p is not None:
        verdict = "the losses do not rank alike" if ranking.p < 0.05 else "no difference of ranks is shown"
        words.append(f"Friedman's chi-square {ranking.chi_square:.2f}, p {p_equals(ranking.p)}: {verdict}.")
    if ranking.critical_difference is not None:
        words.append(
            f"Mean ranks that differ by less than {ranking.critical_difference:.2f} are not told apart (Nemenyi, 5 %); "
            "a bar joins such losses."
        )
    else:
        words.append(f"A critical difference needs five settings; there {'is' if count == 1 else 'are'} {count}.")
    if ranking.left_out:
        words.append(f"Without a value in every setting, and not ranked: {', '.join(ranking.left_out)}.")
    return " ".join(words)


def iqm_text(loss: RankedLoss, metric: Metric) -> str:
    """`+2.1 [-0.4, +3.9]`: the interquartile mean of differences and its interval in printed units; ratios for what is
    averaged on the log scale."""

    def printed(value: float, mark: str = "") -> str:
        return f"{mark}{math.exp(value):.3f}" if metric.is_log_mean else number(value, metric, sign=True)

    if loss.iqm is None:
        return ""
    if loss.iqm_low is None or loss.iqm_high is None:
        return printed(loss.iqm, "×")
    return f"{printed(loss.iqm, '×')} [{printed(loss.iqm_low)}, {printed(loss.iqm_high)}]"


def spent_words(report: Report, table: Table | None = None) -> str:
    """Hours of all runs of a table (of the report, if None), and of those that are in no mean; empty where no run says
    how long it took."""
    where = "table" if table else "tables"
    found = spent(report.records if table is None else of_table(report.records, table))
    if found is None:
        return ""
    gpu = "" if found.gpu_hours is None else f" ({found.gpu_hours:.2f} GPU hours)"
    text = f"Spent in all: {_time(found.hours)}{gpu} by {counted(found.runs, 'run')}"
    if not found.unused_runs:
        return f"{text}, all of them in the {where}."
    gpu = "" if found.unused_gpu_hours is None else f" ({found.unused_gpu_hours:.2f} GPU hours)"
    unused = counted(found.unused_runs, "run")
    return f"{text}; of these {_time(found.unused_hours)}{gpu} by {unused} not in the {where}."


def _time(hours: float) -> str:
    return f"{hours:.2f} hours" if hours >= 1 else f"{60 * hours:.1f} minutes"


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


def _rows(report: Report) -> str:
    """Which runs a row is made of."""
    seeds = sorted({record.seed for record in report.records if record.seed is not None})
    named = ", ".join(map(str, seeds)) if len(seeds) <= 12 else f"{seeds[0]} to {seeds[-1]}, {len(seeds)} of them"
    said = f" ({'seed' if len(seeds) == 1 else 'seeds'} {named})" if seeds else ""
    return (
        f"A row holds runs that differ in nothing but the seed{said}; another setting makes a row of its own. A run "
        "that was stopped and went on is one run, of which the newest attempt counts."
    )


def code_versions(report: Report) -> list[str]:
    """`lossbench 0.1.0 (0123456789ab)` of every code that runs were made with, in order."""
    found = set()
    for record in report.records:
        if version := record.versions.get("lossbench"):
            commit = record.versions.get("git commit")
            found.add(f"lossbench {version} ({commit})" if commit else f"lossbench {version}")
    return sorted(found)
