"""Verbatim memorisation of training texts after fine-tuning: `evaluation=memorisation`.

A training text is extractable with k tokens of context if the model, given those k tokens and decoding greedily, goes
on with exactly the m tokens that follow them in the text (Carlini et al., "Quantifying Memorization Across Neural
Language Models", ICLR 2023, https://arxiv.org/abs/2202.07646, definition 3.1, there with m = 50; "discoverable"
memorisation in Nasr et al. 2023, https://arxiv.org/abs/2311.17035). Where a dataset has prompts, the prompt and k
tokens of the target are given: only targets are learned. Equality is that of token ids; EOS is no part of a text.

The same is measured on texts of the evaluated split, which were not trained on: what is continued verbatim there was
predictable, or known before, and is no memory of this training.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from lossbench.config import EvaluationConfig
from lossbench.data.tokens import TokenizedExample
from lossbench.errors import DataError
from lossbench.evaluation.generate import generate

if TYPE_CHECKING:
    from transformers import PreTrainedModel

MEMORISED = "memorised"  # the view of its rows

Row = dict[str, Any]
Part = Literal["train", "held_out"]


@dataclass(frozen=True)
class Passage:
    """`given` are the tokens before a cut in a text (BOS and prompt included), `following` the m tokens after it."""

    id: str
    part: Part
    given: list[int]
    following: list[int]


def passages(
    config: EvaluationConfig,
    train: Sequence[TokenizedExample],
    held_out: Sequence[TokenizedExample],
    *,
    ends_with_eos: bool,
) -> list[Passage]:
    """What is asked of the model, of training texts first; nothing where `config` asks for no memorisation.

    Of each side come at most `memorisation.limit` texts, evenly spaced over those whose targets have at least
    `prompt_tokens + continuation_tokens` tokens without EOS. Raises `DataError` where no training text is that long.
    """
    wanted = config.memorisation
    if wanted is None:
        return []
    found: list[Passage] = []
    sides: tuple[tuple[Part, Sequence[TokenizedExample]], ...] = (("train", train), ("held_out", held_out))
    for part, texts in sides:
        cut = [_cut(text, part, wanted.prompt_tokens, wanted.continuation_tokens, ends_with_eos) for text in texts]
        long_enough = [passage for passage in cut if passage is not None]
        if part == "train" and not long_enough:
            longest = max((len(text.input_ids) - text.target_start for text in texts), default=0)
            raise DataError(
                f"Memorisation needs training targets of at least {wanted.prompt_tokens} + "
                f"{wanted.continuation_tokens} tokens, and the longest has {longest} (EOS included): lower "
                "evaluation.memorisation.prompt_tokens or evaluation.memorisation.continuation_tokens."
            )
        count = min(len(long_enough), wanted.limit or len(long_enough))
        found += [long_enough[place * len(long_enough) // count] for place in range(count)]
    return found


def memorisation_rows(
    model: PreTrainedModel,
    tokenizer: Any,
    asked: Sequence[Passage],
    *,
    batch_size: int = 8,
    on_progress: Callable[[int, int, float], None] | None = None,
) -> list[Row]:
    """One row a passage: `verbatim_tokens` is how many new tokens are the text's own before the first other one, and
    `extractable` whether all are. `split` is `train` or `held_out`."""
    completions = generate(
        model,
        tokenizer,
        [passage.given for passage in asked],
        max_new_tokens=max(len(passage.following) for passage in asked),
        batch_size=batch_size,
        on_progress=on_progress,
    )
    return [_row(tokenizer, *pair) for pair in zip(asked, (done.token_ids for done in completions), strict=True)]


def memorisation_metrics(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """memorisation/extractable: the fraction of the training texts that is extractable; memorisation/verbatim_tokens:
    mean tokens before the first that differs; NAME_held_out: of texts that were not trained on; memorisation/n: the
    number of training texts."""
    found: dict[str, float] = {}
    for part, suffix in (("train", ""), ("held_out", "_held_out")):
        own = [row for row in rows if row["split"] == part]
        if own:
            found[f"memorisation/extractable{suffix}"] = sum(bool(row["extractable"]) for row in own) / len(own)
            found[f"memorisation/verbatim_tokens{suffix}"] = sum(row["verbatim_tokens"] for row in own) / len(own)
    return {**found, "memorisation/n": float(sum(row["split"] == "train" for row in rows))}


def _cut(text: TokenizedExample, part: Part, before: int, after: int, ends_with_eos: bool) -> Passage | None:
    ids = text.input_ids[:-1] if ends_with_eos else text.input_ids
    cut = text.target_start + before
    following = ids[cut : cut + after]
    return Passage(text.id, part, ids[:cut], following) if len(following) == after else None


def _row(tokenizer: Any, passage: Passage, written: list[int]) -> Row:
    pairs = zip(written, passage.following, strict=False)  # EOS ends what is written early
    verbatim = next((place for place, (one, other) in enumerate(pairs) if one != other), len(written))
    given, following, continued = (
        tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        for ids in (passage.given, passage.following, written)
    )
    return {
        "id": passage.id,
        "split": passage.part,
        "view": MEMORISED,
        "prompt": given,
        "prompt_tokens": len(passage.given),
        "following": following,
        "continued": continued,
        "verbatim_tokens": verbatim,
        "extractable": written == passage.following,
    }
