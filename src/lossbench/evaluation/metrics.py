"""From one row an example to the numbers of a split. Nothing else enters: whoever has the rows can compute them again.

A mean over tokens is total over total, never a mean of examples' means; a share is over all examples of the split.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from lossbench.evaluation.answers import ERROR_CLASSES
from lossbench.evaluation.perplexity import bits_per_byte, ppl

Row = Mapping[str, Any]

EXACT_MATCHES = ("em", "em_strict", "em_flexible", "em_seed")
PREFIXES = {"validation": "val"}


def aggregate(rows: Sequence[Row], split: str) -> dict[str, float]:
    """The metrics that the columns of `rows` allow, named `split/metric` (validation is `val`).

    em, em_strict, em_flexible, em_seed: fractions of the examples. error/CLASS: the fraction of each error class.
    stops/REASON: of each way to end a text. new_tokens: generated tokens an example. nll: nats a target token, all
    targets together; ppl = exp(nll); eos_nll: nats at the end-of-sequence tokens alone. entropy: mean entropy in nats
    of the predictions at the target tokens; token_accuracy: the fraction of them that is the most probable token.
    bits_per_byte: of the targets' text, without EOS. data/n_SPLIT: the number of examples.
    """
    prefix = PREFIXES.get(split, split)
    found = {**_answer_metrics(rows), **_token_metrics(rows)}
    return {f"data/n_{prefix}": float(len(rows))} | {f"{prefix}/{name}": value for name, value in found.items()}


def _answer_metrics(rows: Sequence[Row]) -> dict[str, float]:
    found = {name: _mean(_column(rows, name)) for name in EXACT_MATCHES if _has(rows, name)}
    if _has(rows, "error_class"):
        classes = _column(rows, "error_class")
        found |= {f"error/{name}": _mean(c == name for c in classes) for name in ERROR_CLASSES if name != "ok"}
    if _has(rows, "stop_reason"):
        reasons = _column(rows, "stop_reason")
        found |= {f"stops/{name}": _mean(r == name for r in reasons) for name in ("eos", "stop_string", "length")}
        found["new_tokens"] = _mean(_column(rows, "n_new_tokens"))
    return found


def _token_metrics(rows: Sequence[Row]) -> dict[str, float]:
    if not _has(rows, "nll_sum"):
        return {}
    nll_sum, n_tokens = math.fsum(_column(rows, "nll_sum")), sum(_column(rows, "n_tokens"))
    found = {
        "nll": nll_sum / n_tokens,
        "ppl": ppl(nll_sum, n_tokens),
        "entropy": math.fsum(_column(rows, "entropy_sum")) / n_tokens,
        "token_accuracy": sum(_column(rows, "n_correct_tokens")) / n_tokens,
    }
    has_eos = _fills(rows, "eos_nll")
    if has_eos:
        found["eos_nll"] = _mean(_column(rows, "eos_nll"))
    if _fills(rows, "n_bytes"):
        eos_sum = math.fsum(_column(rows, "eos_nll")) if has_eos else 0.0
        found["bits_per_byte"] = bits_per_byte(nll_sum - eos_sum, sum(_column(rows, "n_bytes")))
    return found


def _has(rows: Sequence[Row], column: str) -> bool:
    return bool(rows) and all(row.get(column) is not None for row in rows)


def _fills(rows: Sequence[Row], column: str) -> bool:
    """`_has` for columns that some tasks leave empty: a table read from a file writes a missing number as NaN."""
    return _has(rows, column) and not any(math.isnan(value) for value in _column(rows, column))


def _column(rows: Sequence[Row], column: str) -> list[Any]:
    return [row[column] for row in rows]


def _mean(values: Iterable[float]) -> float:
    found = [float(value) for value in values]
    return math.fsum(found) / len(found)
