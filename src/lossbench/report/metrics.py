"""What the report knows about metrics: how they are named, read, checked, averaged and printed.

A metric's name is `split/quantity`; one entry in `QUANTITIES` describes a quantity for every split. A name that is not
in the registry is shown plainly: as it is logged, four significant digits, no direction and so no mark.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from lossbench.errors import ConfigError, nearest

Direction = Literal["higher", "lower"]


@dataclass(frozen=True)
class Metric:
    """One column.

    Attributes:
        name: as logged, e.g. `test/em`.
        label: as printed, e.g. `Exact match`.
        unit: what one unit is (`%`, `s`, `nats`); empty for a plain number.
        direction: which values are better; None where the question makes no sense.
        scale: factor between the logged and the printed value (a fraction shown as per cent has 100).
        digits: decimal places; None for four significant digits.
        low, high: bounds of a possible value, inclusive; outside them a value is invalid.
        is_log_mean: average log values and show exp of the mean (perplexity); a difference is then a ratio.
        is_required: a run without it is incomplete when a run of the same model and dataset has it.
        is_ranked: best and second best are marked, and differences to the baseline are tested.
        description: one sentence for the method notes.
    """

    name: str
    label: str
    unit: str = ""
    direction: Direction | None = None
    scale: float = 1.0
    digits: int | None = None
    low: float = -math.inf
    high: float = math.inf
    is_log_mean: bool = False
    is_required: bool = False
    is_ranked: bool = False
    description: str = ""

    def is_valid(self, value: float) -> bool:
        """True for a finite value within the bounds."""
        return math.isfinite(value) and self.low <= value <= self.high


def _fraction(label: str, description: str) -> Metric:
    return Metric(
        "", label, "%", "higher", 100.0, 1, 0.0, 1.0, is_required=True, is_ranked=True, description=description
    )


QUANTITIES: dict[str, Metric] = {
    "em": _fraction("Exact match", "share of examples whose extracted answer equals the reference answer"),
    "em_strict": _fraction("Exact match (strict)", "exact match with the answer read by the task's strict rule"),
    "em_flexible": _fraction("Exact match (flexible)", "exact match with the answer read by the flexible rule"),
    "accuracy": _fraction("Accuracy", "share of examples for which the right choice is picked"),
    "mauve": Metric(
        "",
        "MAUVE",
        "",
        "higher",
        1.0,
        3,
        0.0,
        1.0,
        is_required=True,
        is_ranked=True,
        description="closeness of generated to human text, from 0 to 1",
    ),
    "ppl": Metric(
        "",
        "Perplexity",
        "",
        "lower",
        1.0,
        3,
        1.0,
        is_log_mean=True,
        is_required=True,
        is_ranked=True,
        description="exp of the mean negative log-likelihood a target token; averaged over seeds on the log scale",
    ),
    "nll": Metric(
        "",
        "NLL",
        "nats",
        "lower",
        1.0,
        4,
        0.0,
        is_required=True,
        is_ranked=True,
        description="mean negative log-likelihood of the target tokens, comparable across losses",
    ),
    "cross_entropy": Metric("", "Cross-entropy", "nats", "lower", 1.0, 4, 0.0),
    "ece": Metric("", "Calibration error", "%", "lower", 100.0, 1, 0.0, 1.0, is_ranked=True),
    "train_s": Metric("", "Training time", "s", "lower", 1.0, 1, 0.0, description="wall-clock seconds of training"),
    "eval_s": Metric("", "Evaluation time", "s", "lower", 1.0, 1, 0.0),
    "tokens_per_s": Metric("", "Tokens per second", "", "higher", 1.0, 0, 0.0),
    "peak_mem_gib": Metric("", "Peak memory", "GiB", "lower", 1.0, 2, 0.0),
    "gpu_hours": Metric("", "GPU hours", "h", "lower", 1.0, 2, 0.0),
}
# Shown unless the user names columns; only those that some run has.
DEFAULT_COLUMNS = ("test/em", "test/accuracy", "test/mauve", "test/ppl", "val/nll", "time/train_s")
SPLITS = {"test": "", "val": "Validation", "train": "Training"}


def describe(name: str) -> Metric:
    """The entry for a metric's name; a plain one where the registry has none."""
    split, _, rest = name.partition("/")
    quantity, _, variant = rest.partition("/")
    known = QUANTITIES.get(quantity)
    if known is None:
        return Metric(name=name, label=name)
    label = f"{SPLITS.get(split, '')} {known.label}".strip()
    if split in SPLITS and SPLITS[split] and not known.label[:2].isupper():
        label = f"{SPLITS[split]} {known.label[0].lower()}{known.label[1:]}"
    return replace(known, name=name, label=f"{label} ({variant})" if variant else label)


def choose_columns(present: Iterable[str], asked: Iterable[str] | None = None) -> list[Metric]:
    """The columns of the report.

    Args:
        present: names of all metrics that some run recorded.
        asked: names that the user wants, in this order; None for the default columns that are present (all of `test/`
            where none of them is).

    Raises:
        ConfigError: an asked name that no run recorded.
    """
    known = sorted(set(present))
    if asked is None:
        names = [name for name in DEFAULT_COLUMNS if name in known]
        names = names or [name for name in known if name.startswith("test/")]
    else:
        names = list(dict.fromkeys(asked))
        for name in names:
            if name not in known:
                raise ConfigError(f"No run recorded the metric {name!r}.{nearest(name, known)}")
    return [describe(name) for name in names]
