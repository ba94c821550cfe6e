"""What the report knows about metrics: from a logged name to a column.

A metric's name is `split/quantity`; one entry in `quantities.QUANTITIES` describes a quantity for every split. A name
that is not in the registry is shown plainly: as it is logged, four significant digits, no direction and so no mark.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from functools import cache

from lossbench.errors import ConfigError, nearest
from lossbench.report.quantities import QUANTITIES, Metric, fraction, number, share

__all__ = ["Metric", "choose_columns", "describe"]


# Shown unless the user names columns; only those that some run has.
DEFAULT_COLUMNS = (
    "test/em",
    "test/accuracy",
    "test/letter_logprob",
    "test/acc",
    "test/acc_norm",
    "test/mauve",  # of any featurizer, each in a column of its own
    "test/mauve_indicative",
    "test/ppl",
    "memorisation/extractable",
    "memorisation/extractable_held_out",
    "val/nll",
    "time/train_s",
)
EVALUATED = "evaluated/"  # as `report.evaluations` names them: evaluated/DATASET/test/em
NAMED_IN_METRIC = frozenset({"joint", "lm-eval"})
SPLITS = {"test": "", "val": "Validation", "train": "Training"}

_MAUVE = re.compile(r"(mauve|mauve_indicative)\[([^\]]+)\](?:/(.+))?")
_ROLLING = re.compile(r"rolling\[bos=(\w+)\]/(.+)")
_MAUVE_PARTS: dict[str, Metric] = {
    "star": number("MAUVE*", "higher", "MAUVE with half a text more in each bucket", high=1.0),
    "frontier_integral": number("Frontier integral", "lower", "distance of generated from human text", high=1.0),
    "sd_generation": number("MAUVE, s.d. of generation", None, "standard deviation over generation seeds", 4),
    "sd_clustering": number("MAUVE, s.d. of clustering", None, "standard deviation over k-means seeds", 4),
    "n": number("MAUVE, texts", None, "fewest texts a side of a generation seed", 0),
    "dropped": share("MAUVE, dropped", None, "examples of which nothing was compared, because a text was too short"),
    "ceiling": number("MAUVE, human ceiling", None, "half of the human texts against the other half", high=1.0),
    "half": number("MAUVE, half", None, "half of the human texts against as many of the model's", high=1.0),
    "tuned": number("MAUVE, tuned temperature", "higher", "at the best temperature on validation", high=1.0),
    "tuned_temperature": number("Tuned temperature", None, "the temperature with the best MAUVE on validation", 2),
    "tuned_sd_generation": number("MAUVE tuned, s.d. of generation", None, "over generation seeds", 4),
}


@cache
def describe(name: str) -> Metric:
    """The entry for a metric's name; a plain one where the registry has none."""
    if name.startswith(EVALUATED):
        return _describe_evaluated(name)
    split, _, rest = name.partition("/")
    if found := _MAUVE.fullmatch(rest):
        return _describe_mauve(name, split, *found.groups())
    if found := _ROLLING.fullmatch(rest):
        of_windows = QUANTITIES.get(found[2]) or number("Tokens", None, "scored tokens", 0)
        words = of_windows.label if of_windows.label.isupper() else of_windows.label[0].lower() + of_windows.label[1:]
        label = f"{_with_split(split, f'Rolling {words}')} [BOS {found[1]}]"
        return replace(of_windows, name=name, label=label, is_required=False)
    if split == "harness":
        return _describe_harness(name, rest)
    known, variant = QUANTITIES.get(rest), ""
    if known is None:
        quantity, _, variant = rest.partition("/")
        known = QUANTITIES.get(quantity) or _of_samples(quantity)
    if known is None:
        return Metric(name=name, label=name)
    label = _with_split(split, known.label)
    return replace(known, name=name, label=f"{label} ({variant})" if variant else label)


def _describe_evaluated(name: str) -> Metric:
    """A number of an evaluation after the run: the label names what was evaluated. No run is incomplete without it."""
    _, subject, inner = (*name.split("/", 2), "")[:3]
    of_run = describe(inner)
    label = of_run.label if subject in NAMED_IN_METRIC else f"{of_run.label} [{subject.replace('+', ', ')}]"
    said = f"{of_run.description}; " if of_run.description else ""
    afterwards = f"{said}evaluated after the run, on {subject}"
    return replace(of_run, name=name, label=label, is_required=False, description=afterwards)


def _with_split(split: str, label: str) -> str:
    prefix = SPLITS.get(split, "")
    if prefix and not label[:2].isupper():
        label = f"{label[0].lower()}{label[1:]}"
    return f"{prefix} {label}".strip()


def _describe_mauve(name: str, split: str, kind: str, featurizer: str, part: str | None) -> Metric:
    """The featurizer stands in the label, since values of different ones are not comparable."""
    known = QUANTITIES[kind] if part is None else _MAUVE_PARTS.get(part)
    if known is None and part is not None and part.startswith("tuning_at_"):
        known = number(f"MAUVE at {part.removeprefix('tuning_at_')}", None, "on validation, to tune", high=1.0)
    if known is None:
        return Metric(name=name, label=name)
    return replace(known, name=name, label=f"{_with_split(split, known.label)} [{featurizer}]")


def _of_samples(quantity: str) -> Metric | None:
    """pass@k and maj@k for any k."""
    kind, _, size = quantity.partition("@")
    if kind == "pass" and size.isdecimal():
        return fraction(quantity, f"chance that one of {size} sampled answers is right, estimated without bias")
    if kind == "maj" and size.isdecimal():
        return fraction(quantity, f"share of examples where the most frequent of {size} sampled answers is right")
    return None


def _describe_harness(name: str, rest: str) -> Metric:
    """Numbers of lm-evaluation-harness: accuracies are fractions, the others are shown as logged."""
    task, _, quantity = rest.rpartition("/")
    is_rate = quantity.startswith(("acc", "exact_match")) and "stderr" not in quantity
    known = fraction("", "as lm-evaluation-harness computes it, with its own prompts") if is_rate else Metric("", "")
    return replace(known, name=name, label=f"lm-eval {task} {quantity}", is_required=False)


def choose_columns(present: Iterable[str], asked: Iterable[str] | None = None) -> list[Metric]:
    """The columns of the report.

    Args:
        present: names of all metrics that some run recorded.
        asked: names that the user wants, in this order; None for the default columns that are present (all of `test/`
            where none of them is), and the results of later evaluations.

    Raises:
        ConfigError: an asked name that no run recorded.
    """
    known = sorted(set(present))
    if asked is None:
        names = [name for default in DEFAULT_COLUMNS for name in known if _is_column(name, default)]
        names = names or [name for name in known if name.startswith("test/")]
        names += [name for name in known if name.startswith(EVALUATED) and _is_result(name)]
    else:
        names = list(dict.fromkeys(asked))
        for name in names:
            if name not in known:
                raise ConfigError(f"No run recorded the metric {name!r}.{nearest(name, known)}")
    return [describe(name) for name in names]


def _is_column(name: str, default: str) -> bool:
    return name == default or (name.startswith(f"{default}[") and name.endswith("]"))


def _is_result(name: str) -> bool:
    """True for what a later evaluation is made for: the default columns of any split, and accuracies of lm-eval."""
    split, _, quantity = name.split("/", 2)[-1].partition("/")
    if split == "harness":
        return describe(name).is_ranked
    return any(_is_column(f"test/{quantity}", default) for default in DEFAULT_COLUMNS)
