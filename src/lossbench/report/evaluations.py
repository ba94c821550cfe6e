"""Numbers of evaluations that were made after a run, as metrics of it with names of their own.

`evaluated/gsm8k/test/em` is what `lossbench evaluate RUN dataset=gsm8k` found. Such numbers never take the place of the
run's own, and those of one name were all made alike: where evaluations of one dataset differ in more than the run
(tokens that are generated, say), the second kind is `evaluated/gsm8k#2/test/em`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from lossbench.report.metrics import EVALUATED
from lossbench.report.numbers import timestamp
from lossbench.report.records import LaterEvaluation, RunRecord


def with_evaluations(records: Sequence[RunRecord]) -> list[RunRecord]:
    """The records, those with later evaluations with their metrics added, and a sentence where one replaces another."""
    kinds: dict[tuple[str, str], dict[str, tuple[float, str]]] = defaultdict(dict)
    for record in records:
        for evaluation in record.evaluations:
            known = kinds[record.model, evaluation.subject]
            age = (_age(evaluation), evaluation.protocol)
            known[evaluation.protocol] = min(age, known.get(evaluation.protocol, age))
    numbers = {
        (model, subject, protocol): number
        for (model, subject), known in kinds.items()
        for number, protocol in enumerate(sorted(known, key=lambda protocol: known[protocol]), start=1)
    }
    return [_with_evaluations(record, numbers) if record.evaluations else record for record in records]


def _with_evaluations(record: RunRecord, numbers: dict[tuple[str, str, str], int]) -> RunRecord:
    metrics, problems = dict(record.metrics), list(record.problems)
    origin: dict[str, LaterEvaluation] = {}
    for evaluation in sorted(record.evaluations, key=lambda e: (_age(e), e.location)):
        number = numbers[record.model, evaluation.subject, evaluation.protocol]
        subject = evaluation.subject if number == 1 else f"{evaluation.subject}#{number}"
        if (earlier := origin.get(subject)) is not None:
            problems.append(
                f"{evaluation.location} evaluates {subject} as {earlier.location} did (another checkpoint, or other "
                "versions of packages); of equal names the newer one's numbers are used."
            )
        origin[subject] = evaluation
        metrics.update({f"{EVALUATED}{subject}/{name}": value for name, value in evaluation.metrics.items()})
    return replace(record, metrics=metrics, problems=tuple(problems))


def _age(evaluation: LaterEvaluation) -> float:
    return timestamp(evaluation.created) or 0.0
