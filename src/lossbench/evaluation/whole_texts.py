"""Perplexity of whole texts in overlapping windows, beside that of passages: `evaluation.rolling=true`.

Every token is scored once, with at least `max_length - stride` tokens before it wherever the text has them. Lines of a
running text (WikiText, PTB) are put together, as in the literature; other documents are scored one by one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from lossbench.config import EvaluationConfig
from lossbench.data.example import Example
from lossbench.errors import ConfigError
from lossbench.evaluation.perplexity import bits_per_byte, byte_ppl, ppl, rolling, word_ppl
from lossbench.models.load import context_window

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from lossbench.data.task import Task

WHOLE_TEXT = "whole_text"
LONGEST_WINDOW = 1024

BosMode = Literal["none", "first", "each_window"]
Row = dict[str, Any]


@dataclass(frozen=True)
class Windows:
    """Length and distance of windows in tokens (None: the model's window up to 1,024, and half of it), and what stands
    before the first token (see `perplexity.rolling`); `first` is `none` where the tokenizer has no BOS."""

    max_length: int | None = None
    stride: int | None = None
    bos: BosMode = "first"

    @classmethod
    def of(cls, config: EvaluationConfig) -> Windows | None:
        """What a configuration asks for."""
        if not config.rolling:
            return None
        return cls(config.rolling_max_length, config.rolling_stride, config.rolling_bos)


@dataclass(frozen=True)
class WholeTexts:
    """The texts to score, and in which windows."""

    texts: list[Example]
    windows: Windows


def whole_texts(task: Task, config: EvaluationConfig) -> WholeTexts | None:
    """The texts of the evaluated split, or None where no perplexity of whole texts is asked for."""
    windows = Windows.of(config)
    if windows is None:
        return None
    documents = getattr(task, "documents", None)
    if documents is None:
        raise ConfigError(
            f"evaluation.rolling=true is the perplexity of whole texts, and {type(task).__name__} has prompts and "
            "targets: leave it out, or choose a dataset for language modelling."
        )
    found = [text for text in documents(config.split)[: config.limit] if text.target]
    if getattr(task, "running_text", False) and found:
        found = [Example(f"{found[0].id}...", "", "".join(text.target for text in found))]
    return WholeTexts(found, windows)


def whole_text_rows(
    model: PreTrainedModel, tokenizer: Any, asked: WholeTexts, split: str, *, batch_size: int = 8
) -> list[Row]:
    """One row a text: `nll_sum` in nats, `n_tokens`, and the `n_bytes` and `n_words` of exactly the scored text (None
    where windows leave out more than the first token)."""
    length = asked.windows.max_length or min(context_window(model) or LONGEST_WINDOW, LONGEST_WINDOW)
    stride = asked.windows.stride or max(1, length // 2)
    mode: BosMode = asked.windows.bos
    if mode == "first" and tokenizer.bos_token_id is None:
        mode = "none"
    bos: Any = {"none": None, "first": tokenizer.bos_token_id, "each_window": "each_window"}[mode]
    rows = []
    for text in asked.texts:
        encoded = tokenizer(text.target, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
        ids, first_end = encoded["input_ids"], encoded["offset_mapping"][0][1]
        if len(ids) < 2 and mode == "none":
            continue  # a single token has nothing before it
        score = rolling(model, ids, length, stride, bos=bos, batch_size=batch_size)
        scored = text.target[first_end:] if mode == "none" else text.target
        is_whole = score.n_scored == len(ids) - (mode == "none")
        rows.append(
            {
                "id": text.id,
                "split": split,
                "view": WHOLE_TEXT,
                "bos_mode": mode,
                "window": length,
                "stride": stride,
                "nll_sum": score.nll_sum,
                "n_tokens": score.n_scored,
                "n_bytes": len(scored.encode()) if is_whole else None,
                "n_words": len(scored.split()) if is_whole else None,
            }
        )
    return rows


def whole_text_metrics(rows: Sequence[Row]) -> dict[str, float]:
    """rolling[bos=MODE]/nll, /ppl, /bits_per_byte, /byte_ppl, /word_ppl: total over total."""
    name = f"rolling[bos={rows[0]['bos_mode']}]"
    nll, tokens = math.fsum(row["nll_sum"] for row in rows), int(sum(row["n_tokens"] for row in rows))
    found = {f"{name}/nll": nll / tokens, f"{name}/ppl": ppl(nll, tokens), f"{name}/n_tokens": float(tokens)}
    if all(row["n_bytes"] is not None for row in rows):
        n_bytes, n_words = (int(sum(row[column] for row in rows)) for column in ("n_bytes", "n_words"))
        found[f"{name}/bits_per_byte"] = bits_per_byte(nll, n_bytes)
        found[f"{name}/byte_ppl"] = byte_ppl(nll, n_bytes)
        if n_words:
            found[f"{name}/word_ppl"] = word_ppl(nll, n_words)
    return found
