"""Under which protocol texts are made, cut and compared for MAUVE; every choice here moves the number.

lossbench  human: prefix + continuation, model: the same prefix + a sample. Both are tokenised by the featurizer and cut
           to one length, since MAUVE sees a difference in length as one in quality; a pair in which one text is shorter
           is dropped. The length is what nine in ten of the human texts reach, so that it depends on the data alone.
emo        as in the EMO paper's code (https://github.com/DRSY/EMO): as many new tokens as the human continuation has
           words, two spaces between prefix and sample, at most 256 tokens, nothing dropped, k-means seed 25. Human
           texts are longer than model texts and spaced in another way: it depresses all scores and is for parity alone.
mixce      the length-controlled variant of MixCE (https://github.com/bloomberg/MixCE-acl2023): windows of
           tokens / 1.35 words from anywhere in the texts, 10,000 of a side, at most 512 tokens, not paired.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from lossbench.data.example import Example
from lossbench.errors import DataError
from lossbench.evaluation.featurizer import Featurizer, Pooling
from lossbench.models.load import context_window

ProtocolName = Literal["lossbench", "emo", "mixce"]

NOT_REACHED_BY_ONE_IN = 10
EMO_TOKENS, EMO_CLUSTERING_SEED = 256, 25
MIXCE_TOKENS, MIXCE_WINDOWS, TOKENS_PER_WORD = 512, 10_000, 1.35

Pieces = list[list[list[int]]]
"""For each example the token ids of each of its pieces: none, one, or for `mixce` several windows."""


@dataclass(frozen=True)
class MauveProtocol:
    """What else can move the number; all of it belongs into the fingerprint of an evaluation."""

    protocol: ProtocolName = "lossbench"
    featurizer: str = "lossbench:tiny"
    pooling: Pooling = "last"
    generation_seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    clustering_seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    buckets: int | None = None  # null: a tenth of the texts of a side
    tokens: int | None = None  # length of both texts; null: what nine in ten of the human texts reach
    max_new_tokens: int | None = None  # null: the tokens of the longest target, under emo its words
    temperature: float = 1.0
    tune: tuple[float, ...] = ()  # temperatures of which the one with the best MAUVE on validation is evaluated too
    ceiling: bool = True  # human against human texts

    @property
    def is_paired(self) -> bool:
        """Whether the human and the model's text of an example are kept or dropped together."""
        return self.protocol != "mixce"

    @property
    def clusterings(self) -> tuple[int, ...]:
        """The clustering seeds: EMO has one."""
        return (EMO_CLUSTERING_SEED,) if self.protocol == "emo" else self.clustering_seeds

    def label(self, featurizer: Featurizer) -> str:
        """What stands in the metric's brackets: `gpt2-large`, or `gpt2-large,emo`."""
        return featurizer.name if self.protocol == "lossbench" else f"{featurizer.name},{self.protocol}"


def human_texts(examples: Sequence[Example]) -> list[str]:
    return [example.prompt + example.target for example in examples]


def model_texts(protocol: MauveProtocol, examples: Sequence[Example], samples: Sequence[str]) -> list[str]:
    between = " " if protocol.protocol == "emo" else ""
    return [example.prompt + between + sample for example, sample in zip(examples, samples, strict=True)]


def new_tokens(protocol: MauveProtocol, examples: Sequence[Example], target_tokens: Sequence[int]) -> int:
    """How many tokens a model may write: those of the longest target, or with EMO as many as it has words."""
    if protocol.max_new_tokens is not None:
        return protocol.max_new_tokens
    if protocol.protocol == "emo":
        return max(len(example.target.split()) for example in examples)
    return max(target_tokens)


@dataclass(frozen=True)
class Cutter:
    """Cuts texts into the pieces that are compared; `length` in tokens of the featurizer."""

    protocol: ProtocolName
    featurizer: Featurizer
    length: int

    @classmethod
    def of(cls, protocol: MauveProtocol, featurizer: Featurizer, human: Sequence[str]) -> Cutter:
        """The length is the protocol's own, or else what nine in ten of the human texts reach; the featurizer's context
        window limits it."""
        window = context_window(featurizer.model) or sys.maxsize
        if protocol.protocol == "emo":
            return cls("emo", featurizer, min(protocol.tokens or EMO_TOKENS, window))
        lengths = [] if protocol.tokens else sorted(map(len, featurizer.encode(human)))
        reached = protocol.tokens or lengths[len(lengths) // NOT_REACHED_BY_ONE_IN]
        return cls(protocol.protocol, featurizer, min(reached, window))

    def pieces(self, texts: Sequence[str], seed: int) -> Pieces:
        """The pieces of each text; the `seed` draws MixCE's windows. Raises `DataError` for too few of those."""
        if self.protocol == "mixce":
            return self._windows(texts, seed)
        tokens = self.featurizer.encode(texts)
        if self.protocol == "emo":
            return [[ids[: self.length]] for ids in tokens]
        return [[ids[: self.length]] if len(ids) >= self.length else [] for ids in tokens]

    def _windows(self, texts: Sequence[str], seed: int) -> Pieces:
        words = [text.split() for text in texts]
        size = max(1, int(self.length / TOKENS_PER_WORD))
        places = [(n, start) for n, found in enumerate(words) for start in range(len(found) - size)]
        if len(places) < MIXCE_WINDOWS:
            raise DataError(
                f"The protocol mixce compares {MIXCE_WINDOWS:,} windows of {size} words a side, and there are only "
                f"{len(places):,}: evaluate more or longer texts, or choose fewer tokens (evaluation.mauve.tokens)."
            )
        drawn = np.random.default_rng(seed).permutation(len(places))[:MIXCE_WINDOWS]
        cut = [(places[p][0], " ".join(words[places[p][0]][places[p][1] :][:size])) for p in sorted(drawn.tolist())]
        found: Pieces = [[] for _ in texts]
        for (number, _), ids in zip(cut, self.featurizer.encode([text for _, text in cut]), strict=True):
            found[number].append(ids[: min(MIXCE_TOKENS, context_window(self.featurizer.model) or MIXCE_TOKENS)])
        return found


def flat(pieces: Sequence[Sequence[Any]]) -> list[Any]:
    """All pieces of all examples, in order."""
    return [piece for group in pieces for piece in group]


def regrouped(values: Sequence[Any], pieces: Sequence[Sequence[Any]]) -> list[list[Any]]:
    """`flat` undone, for one value a piece."""
    rest = iter(values)
    return [[next(rest) for _ in group] for group in pieces]
