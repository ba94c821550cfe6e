"""From text to token ids, with the boundary between prompt and target exact."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lossbench.data import token_cache
from lossbench.data.example import Example
from lossbench.data.token_cache import Encoded
from lossbench.errors import DataError

AT_ONCE = 1000  # texts in one call of the tokenizer, which spreads them over the cores

OnProgress = Callable[[int, int, float], None]
"""Called after each batch with (texts done, texts in all, tokens per second)."""


class TooLongError(DataError):
    """A target does not fit into the context window."""


@dataclass(frozen=True)
class TokenizedExample:
    """`input_ids` is BOS, prompt, target, EOS (as far as the tokenizer and the task have them); from `target_start` on
    they are the target's tokens and EOS, before it the prompt to generate from."""

    id: str
    input_ids: list[int]
    target_start: int
    truncated: bool = False  # the beginning of the prompt was cut off to fit the context window


def tokenize(
    examples: Sequence[Example],
    tokenizer: Any,
    max_length: int,
    *,
    ends_with_eos: bool = True,
    skip_too_long: bool = False,
    cache: Path | None = None,
    on_progress: OnProgress | None = None,
) -> list[TokenizedExample]:
    """Tokenise prompt and target as one text, so that training and generation see the same tokens.

    The boundary comes from character offsets: the target begins with the first token that holds one of its
    characters. An example that is longer than `max_length` tokens loses the beginning of its prompt, never BOS and
    never a token of its target; a target that does not fit by itself raises `TooLongError`, or is left out with
    `skip_too_long` (see `with_tokens`); a text without any token to learn raises `DataError`. Examples that come with
    tokens (`lossbench.data.prepared`) keep them.

    With a `cache` folder the tokens of the same texts under the same tokenizer are computed once; what the window and
    the special tokens make of them is not stored.
    """
    if not examples:
        return []
    if not tokenizer.is_fast:
        raise DataError(
            f"The tokenizer {type(tokenizer).__name__} gives no character offsets, which the exact boundary between "
            "prompt and target needs; save it as a fast tokenizer (tokenizer.json)."
        )
    # falcon and qwen have no BOS; tokenizers that never add theirs (gpt2) were not trained with one in front.
    bos = [tokenizer.bos_token_id] if _adds_bos(tokenizer) else []
    eos = [tokenizer.eos_token_id] if ends_with_eos and tokenizer.eos_token_id is not None else []
    texts = [example for example in examples if "input_ids" not in example.meta]
    encoded = iter(_encode_cached(texts, tokenizer, cache, on_progress))
    found = []
    for example in examples:
        if "input_ids" in example.meta:
            ids, start = example.meta["input_ids"], example.meta["target_start"]
            parts, begin = (ids[:start], ids[start:]), []
        else:
            ids, boundary = next(encoded)
            parts, begin = ([*bos, *ids[:boundary]], [*ids[boundary:], *eos]), bos
        try:
            found.append(_fitted(example, *parts, begin, max_length))
        except TooLongError:
            if not skip_too_long:
                raise
    return found


def with_tokens(examples: Sequence[Example], tokens: Sequence[TokenizedExample]) -> list[Example]:
    """The examples that were not left out, in the same order."""
    kept = {row.id for row in tokens}
    return [example for example in examples if example.id in kept]


def _encode_cached(
    examples: Sequence[Example], tokenizer: Any, cache: Path | None, on_progress: OnProgress | None
) -> Encoded:
    name = token_cache.key(examples, tokenizer) if cache is not None and examples else ""
    stored = token_cache.read(cache, name) if cache is not None and examples else None
    if stored is not None and len(stored) == len(examples):
        return stored
    encoded = _encode(examples, tokenizer, on_progress)
    if cache is not None and examples:
        token_cache.write(cache, name, encoded)
    return encoded


def _encode(examples: Sequence[Example], tokenizer: Any, on_progress: OnProgress | None) -> Encoded:
    found: Encoded = []
    started, tokens = time.monotonic(), 0
    for first in range(0, len(examples), AT_ONCE):
        batch = examples[first : first + AT_ONCE]
        texts = [example.prompt + example.target for example in batch]
        # verbose=False: no warning about long texts, which are cut below
        encoded = tokenizer(texts, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
        for example, ids, offsets in zip(batch, encoded["input_ids"], encoded["offset_mapping"], strict=True):
            boundary = next((i for i, (_, end) in enumerate(offsets) if end > len(example.prompt)), len(ids))
            found.append((ids, boundary))
            tokens += len(ids)
        if on_progress is not None:
            on_progress(len(found), len(examples), tokens / max(time.monotonic() - started, 1e-9))
    return found


def _fitted(
    example: Example, prompt: list[int], target: list[int], bos: list[int], max_length: int
) -> TokenizedExample:
    """Cut the prompt so that the whole fits; `bos` is what it begins with and keeps."""
    if not target or len(prompt) + len(target) < 2:
        raise DataError(
            f"{example.id}: no token of the target {example.target!r} can be predicted from one before it, so all its "
            "labels are ignored and there is nothing to learn. Leave the example out."
        )
    room = max_length - len(target)
    if room < len(bos):
        raise TooLongError(
            f"{example.id}: its target alone is {len(target)} tokens long, but prompt and target together must fit "
            f"into {max_length} (the model's context window, or dataset.max_length). Leave such examples out "
            "(dataset.skip_bad=true), shorten them (passages of language modelling: a smaller "
            "dataset.passage_characters), or take a model with a longer context window."
        )
    truncated = len(prompt) > room
    if truncated:
        prompt = [*bos, *prompt[len(prompt) - room + len(bos) :]]
    return TokenizedExample(example.id, [*prompt, *target], len(prompt), truncated)


def _adds_bos(tokenizer: Any) -> bool:
    return tokenizer.bos_token_id is not None and tokenizer("a")["input_ids"][:1] == [tokenizer.bos_token_id]
