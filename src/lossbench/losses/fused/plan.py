"""How many tokens' logits exist at a time, and where: a pure function of the shapes and a memory budget."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from .head import LOW_PRECISION

CHUNK_BYTES = 32 << 20  # logits of one chunk
BESIDE_KEPT = 24 << 20  # the same where tokens are kept, whose buffers come on top
COSINE_BYTES = 16 << 20  # of EMO's labels
FEWEST_TOKENS = {8: 64, 4: 128, 2: 512}  # of a chunk, by bytes of an element; fewer make the products memory-bound


@dataclass(frozen=True)
class Plan:
    """What happens to n tokens.

    The first `kept` of them have their logits, and then the gradient of these, in the memory of the weight's gradient,
    which is returned in any case and empty until then; those of more than H tokens lie beside it. The others follow
    `chunk` at a time in a buffer of their own, or with `by_vocabulary` in blocks of the vocabulary: once where the head
    is frozen, else for the log-sum-exp and again for the gradient.
    """

    kept: int
    chunk: int
    by_vocabulary: bool = False


def plan(
    n: int,
    vocabulary: int,
    width: int,
    dtype: torch.dtype,
    *,
    trained: bool,
    gate_only: bool,
    only_hidden: bool = False,
    chunk_tokens: int | None = None,
    memory_bytes: int | None = None,
) -> Plan:
    """The plan for n tokens of a head (vocabulary, width) in the dtype of its products.

    Args:
        trained: the weight's gradient is wanted, and in this pass.
        gate_only: the gradient is a number a token times that of cross-entropy, so that `by_vocabulary` is possible.
        only_hidden: no gradient but the hidden states' is wanted, and in this pass.
        chunk_tokens: exactly so many tokens at a time, none of them kept.
        memory_bytes: what may be held beyond inputs and returned gradients, small vectors apart; by default a chunk has
            `CHUNK_BYTES` but at least `FEWEST_TOKENS`, and the sum over chunks in float32 of a low-precision head's
            gradient comes on top.
    """
    if chunk_tokens is not None:
        return Plan(0, _evenly(n, chunk_tokens))
    if only_hidden and gate_only:
        return Plan(0, 0, by_vocabulary=True)
    kept = min(n, width) if trained else 0
    rest = n - kept
    row = vocabulary * dtype.itemsize
    summed = 4 * vocabulary * width if trained and dtype in LOW_PRECISION and rest else 0
    if kept and rest * row <= (max(summed, BESIDE_KEPT) if memory_bytes is None else memory_bytes):
        return Plan(n, 1)  # no more than one chunk or, in low precision, the sum over chunks, which is not needed then
    if memory_bytes is None:
        fewest = FEWEST_TOKENS[dtype.itemsize]
        few = 0 < rest <= kept // 2  # most tokens are kept: slower products for the others do not matter
        size = BESIDE_KEPT if kept else CHUNK_BYTES
        return Plan(kept, _evenly(rest, max(size // row, fewest // 2 if few else fewest)))
    room = (memory_bytes - summed) // row
    if gate_only and rest and room < min(rest, FEWEST_TOKENS[dtype.itemsize]):
        return Plan(kept, 0, by_vocabulary=True)
    return Plan(kept, _evenly(rest, max(room, 1)))


def cosines_at_once(vocabulary: int, dtype: torch.dtype) -> int:
    """How many labels' cosines with the whole vocabulary EMO holds."""
    return max(COSINE_BYTES // (vocabulary * dtype.itemsize), FEWEST_TOKENS[dtype.itemsize] * 2 // 3)


def _evenly(n: int, most: int) -> int:
    """The largest of the chunks that n tokens fall into when none has more than `most` and all are about alike."""
    chunks = -(-n // most)
    return max(1, -(-n // max(chunks, 1)))
