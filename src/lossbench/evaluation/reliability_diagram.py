"""A reliability diagram: how often answers of a confidence are right, from the rows of an evaluation."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lossbench.errors import DataError
from lossbench.evaluation import calibration


def confidences(rows: Sequence[Mapping[str, Any]]) -> tuple[list[float], list[bool]]:
    """Confidence and correctness: of the most likely choice where choices were scored, else exp(mean log p) of the
    generated answer against exact match. Raises `DataError` where the rows have neither."""
    for column in ("choice_logprobs", "letter_logprobs"):
        scored = [row for row in rows if row.get(column) is not None]
        if scored:
            among = [calibration.softmax(list(row[column])) for row in scored]
            return calibration.top_choice(among, [row["gold_choice"] for row in scored])
    answered = [row for row in rows if row.get("mean_logprob") is not None and row.get("em") is not None]
    if not answered:
        raise DataError("These rows hold neither choices nor the confidence of answers, so there is nothing to draw.")
    return [min(1.0, math.exp(row["mean_logprob"])) for row in answered], [bool(row["em"]) for row in answered]


def draw(rows: Sequence[Mapping[str, Any]], file: Path, bins: int = calibration.BINS) -> None:
    """Write the diagram (.svg, .png or .pdf): accuracy of each bin over its mean confidence, the diagonal where both
    are equal, and below it how many answers a bin holds."""
    from matplotlib.figure import Figure

    sure, right = confidences(rows)
    table = calibration.reliability(sure, right, bins)
    ece = calibration.expected_calibration_error(sure, right, bins)
    figure = Figure(figsize=(4.5, 5.5), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    above.plot([0, 1], [0, 1], linestyle="--", color="0.6", linewidth=1)
    above.plot([row.confidence for row in table], [row.accuracy for row in table], marker="o", color="C0")
    above.set(xlim=(0, 1), ylim=(0, 1), ylabel="share that is right", title=f"ECE {ece:.3f}, {len(sure):,} answers")
    below.bar([row.low for row in table], [row.count for row in table], width=1 / bins, align="edge", color="C0")
    below.set(xlabel="confidence", ylabel="answers")
    temporary = file.with_name(f".{file.stem}.tmp{file.suffix}")
    try:
        figure.savefig(temporary)
    except ValueError as error:
        raise DataError(f"{file}: {error}") from None
    temporary.replace(file)
