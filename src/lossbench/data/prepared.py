"""Prepared rows: the Parquet schema of the vision-loss paper's code.

input_ids            list<int32>   padded on the left to one length, cut on the left
attention_mask       list<int8>    0 on padding
labels_position_id   list<int64>   one number: where the target begins in input_ids
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from lossbench.data.example import Example
from lossbench.data.sources import Row
from lossbench.errors import DataError

COLUMNS = frozenset({"input_ids", "attention_mask", "labels_position_id"})
Positions = Literal["seed", "exact"]


@dataclass(frozen=True)
class PreparedRow:
    """One row of the schema; `truncated` where the beginning of the prompt was cut off."""

    input_ids: list[int]
    attention_mask: list[int]
    position: int
    truncated: bool = False


def prepare_rows(
    examples: Sequence[Example], tokenizer: Any, length: int, *, positions: Positions = "seed"
) -> list[PreparedRow]:
    """Tokenise prompt, target and EOS into rows of `length` tokens.

    The tokens are those of the original code whatever `positions`. `seed` puts the position where it does, at `length`
    minus the number of tokens of target and EOS tokenised alone: one too early with a tokenizer that adds BOS, and off
    where the target's first token takes in the space before it. `exact` is where the target's first token really is,
    0 where the row holds nothing but the target.

    Raises `DataError` for a tokenizer without EOS or without character offsets.
    """
    if tokenizer.eos_token is None or not tokenizer.is_fast:
        raise DataError(
            f"The tokenizer {type(tokenizer).__name__} cannot prepare rows: it needs an EOS token and a fast form "
            "(tokenizer.json) that tells character offsets."
        )
    if not examples:
        return []
    pad = tokenizer.eos_token_id if tokenizer.pad_token_id is None else tokenizer.pad_token_id
    whole = tokenizer([e.prompt + e.target + tokenizer.eos_token for e in examples], return_offsets_mapping=True)
    alone = tokenizer([example.target + tokenizer.eos_token for example in examples])["input_ids"]
    rows = []
    for example, ids, offsets, own in zip(examples, whole["input_ids"], whole["offset_mapping"], alone, strict=True):
        bos = 1 if ids[0] == tokenizer.bos_token_id and tuple(offsets[0]) == (0, 0) else 0
        excess = max(0, len(ids) - length)
        kept = [*ids[:bos], *ids[bos + excess :]] if excess else ids  # special tokens are never cut off
        padding = length - len(kept)
        first = next(i for i, (_, end) in enumerate(offsets) if end > len(example.prompt))
        exact = max(0, padding + first - excess)
        position = length - len(own) if positions == "seed" else exact
        rows.append(PreparedRow([pad] * padding + kept, [0] * padding + [1] * len(kept), position, excess > 0))
    return rows


def write(rows: Sequence[PreparedRow], file: Path) -> None:
    """Write rows to a Parquet file, by way of a temporary one."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema(
        {
            "input_ids": pa.list_(pa.field("element", pa.int32())),
            "attention_mask": pa.list_(pa.field("element", pa.int8())),
            "labels_position_id": pa.list_(pa.field("element", pa.int64())),
        }
    )
    columns = [[r.input_ids for r in rows], [r.attention_mask for r in rows], [[r.position] for r in rows]]
    temporary = file.with_name(f"{file.name}.tmp")
    pq.write_table(pa.table(columns, schema=schema), temporary)
    temporary.replace(file)


def example(identifier: str, row: Row, *, has_answer: bool) -> Example:
    """A row of the schema as an example without text: its tokens are in `meta`, without padding."""
    ids, mask, position = (row.fields[name] for name in ("input_ids", "attention_mask", "labels_position_id"))
    position = position[0] if isinstance(position, list) and len(position) == 1 else position
    if (
        not isinstance(ids, list)
        or not isinstance(mask, list)
        or len(ids) != len(mask)
        or not isinstance(position, int)
    ):
        raise DataError(
            f"{row.place}: input_ids and attention_mask must be lists of one length and labels_position_id one number."
        )
    padding = next((i for i, real in enumerate(mask) if real), len(mask))
    if not all(mask[padding:]) or not position < len(ids):
        raise DataError(
            f"{row.place}: a row is padded on the left alone and its target begins inside it, but padding is 0s at "
            f"{[i for i, real in enumerate(mask) if not real][:8]} and labels_position_id is {position} of {len(ids)}."
        )
    meta = {
        "input_ids": ids[padding:],
        "target_start": max(0, position - padding),
        "position": position,
        "has_answer": has_answer,
    }
    return Example(identifier, "", "", meta=meta)


def with_texts(examples: Sequence[Example], tokenizer: Any) -> list[Example]:
    """Prepared examples with prompt and target decoded from their tokens; others as they are."""
    return [_with_text(example, tokenizer) if "input_ids" in example.meta else example for example in examples]


def _with_text(example: Example, tokenizer: Any) -> Example:
    ids, start = example.meta["input_ids"], example.meta["target_start"]
    prompt, target = (tokenizer.decode(part, skip_special_tokens=True) for part in (ids[:start], ids[start:]))
    return replace(example, prompt=prompt, target=target, answer=target if example.meta["has_answer"] else None)
