"""From text to token ids, with the boundary between prompt and target exact."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lossbench.data.example import Example
from lossbench.errors import DataError


@dataclass(frozen=True)
class TokenizedExample:
    """`input_ids` is BOS, prompt, target, EOS (as far as the tokenizer and the task have them); from `target_start` on
    they are the target's tokens and EOS, before it the prompt to generate from."""

    id: str
    input_ids: list[int]
    target_start: int
    truncated: bool = False  # the beginning of the prompt was cut off to fit the context window


def tokenize(
    examples: Sequence[Example], tokenizer: Any, max_length: int, *, ends_with_eos: bool = True
) -> list[TokenizedExample]:
    """Tokenise prompt and target as one text, so that training and generation see the same tokens.

    The boundary comes from character offsets: the target begins with the first token that holds one of its
    characters. An example that is longer than `max_length` tokens loses the beginning of its prompt, never BOS and
    never a token of its target; a target that does not fit by itself raises `DataError`, and so does a text without
    any token to learn.
    """
    if not examples:
        return []
    if not tokenizer.is_fast:
        raise DataError(
            f"The tokenizer {type(tokenizer).__name__} gives no character offsets, which the exact boundary between "
            "prompt and target needs; save it as a fast tokenizer (tokenizer.json)."
        )
    texts = [example.prompt + example.target for example in examples]
    encoded = tokenizer(texts, add_special_tokens=False, return_offsets_mapping=True)
    # falcon and qwen have no BOS; tokenizers that never add theirs (gpt2) were not trained with one in front.
    bos = [tokenizer.bos_token_id] if _adds_bos(tokenizer) else []
    eos = [tokenizer.eos_token_id] if ends_with_eos and tokenizer.eos_token_id is not None else []

    found = []
    for example, ids, offsets in zip(examples, encoded["input_ids"], encoded["offset_mapping"], strict=True):
        boundary = next((i for i, (_, end) in enumerate(offsets) if end > len(example.prompt)), len(ids))
        prompt, target = [*bos, *ids[:boundary]], [*ids[boundary:], *eos]
        if not target or len(prompt) + len(target) < 2:
            raise DataError(
                f"{example.id}: no token of the target {example.target!r} can be predicted from one before it, so all its "
                "labels are ignored and there is nothing to learn. Leave the example out."
            )
        room = max_length - len(target)
        if room < len(bos):
            raise DataError(
                f"{example.id}: its target alone is {len(target)} tokens long, but prompt and target together must fit "
                f"into {max_length} (the model's context window, or dataset.max_length). Leave the example "
                f"out, shorten it, or take a model with a longer context window."
            )
        truncated = len(prompt) > room
        if truncated:
            prompt = [*bos, *prompt[len(prompt) - room + len(bos) :]]
        found.append(TokenizedExample(example.id, [*prompt, *target], len(prompt), truncated))
    return found


def _adds_bos(tokenizer: Any) -> bool:
    return tokenizer.bos_token_id is not None and tokenizer("a")["input_ids"][:1] == [tokenizer.bos_token_id]
