"""Multiple choice without generation: how likely is each choice after the prompt?

    acc         argmax_i  log p(c_i | prompt)                    the sum over the choice's tokens
    acc_norm    argmax_i  log p(c_i | prompt) / characters(c_i)  as lm-evaluation-harness divides
    acc_bytes   argmax_i  log p(c_i | prompt) / bytes(c_i)       as its documentation says, UTF-8
    letter      argmax_i  log p(letter_i | prompt)               where the options stand in the prompt

Of equal scores the first wins, as in numpy's argmax. The harness puts one space between prompt and choice; the space
belongs to the scored tokens and not to the characters and bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from string import ascii_uppercase
from typing import TYPE_CHECKING, Any

from lossbench.data.example import Example
from lossbench.data.tokens import TokenizedExample, tokenize
from lossbench.errors import DataError
from lossbench.evaluation.batching import OnProgress
from lossbench.evaluation.perplexity import target_nll

if TYPE_CHECKING:
    from transformers import PreTrainedModel

DELIMITER = " "


@dataclass(frozen=True)
class ChoiceScores:
    """The choices of one example: log-probabilities in nats, and the sizes that they are divided by."""

    log_probs: tuple[float, ...]
    characters: tuple[int, ...]
    bytes: tuple[int, ...]

    @property
    def by_sum(self) -> int:
        """Index of the most probable choice."""
        return first_best(self.log_probs)

    @property
    def by_character(self) -> int:
        """Index of the choice with the highest log-probability a character."""
        return first_best([score / size for score, size in zip(self.log_probs, self.characters, strict=True)])

    @property
    def by_byte(self) -> int:
        """Index of the choice with the highest log-probability a UTF-8 byte."""
        return first_best([score / size for score, size in zip(self.log_probs, self.bytes, strict=True)])


def first_best(scores: Sequence[float]) -> int:
    """Index of the first maximum."""
    return max(range(len(scores)), key=scores.__getitem__)


def letters(count: int) -> str:
    """The letters of `count` options: `ABCD`."""
    return ascii_uppercase[:count]


def score_choices(
    model: PreTrainedModel,
    tokenizer: Any,
    examples: Sequence[Example],
    *,
    max_length: int,
    batch_size: int = 8,
    on_progress: OnProgress | None = None,
) -> list[ChoiceScores]:
    """Score `example.choices` after `example.prompt`, without EOS, for each example.

    Prompt and choice are tokenised as one text of at most `max_length` tokens (a longer one loses the beginning of its
    prompt). Raises `DataError` for an example with fewer than two choices or an empty one.
    """
    for example in examples:
        _check(example)
    log_probs = _log_probs(
        model, tokenizer, examples, [example.choices for example in examples], max_length, batch_size, on_progress
    )
    return [
        ChoiceScores(
            tuple(scores),
            tuple(len(choice) for choice in example.choices),
            tuple(len(choice.encode()) for choice in example.choices),
        )
        for example, scores in zip(examples, log_probs, strict=True)
    ]


def score_letters(
    model: PreTrainedModel,
    tokenizer: Any,
    examples: Sequence[Example],
    *,
    max_length: int,
    batch_size: int = 8,
    on_progress: OnProgress | None = None,
) -> list[list[float]]:
    """log p of the letter of each option (`A`, `B`, ...) after `example.prompt`, in nats: the answer by letter, free of
    the noise of generation.

    A letter is scored as a whole continuation, so that tokenizers that spell it with several tokens (a space of its own
    and the letter, or bytes) serve as well; what letters share costs all of them the same. `DataError` is raised where
    two letters have the same tokens, since nothing then tells them apart.
    """
    for example in examples:
        _check(example)
    named = [letters(len(example.choices)) for example in examples]
    return _log_probs(model, tokenizer, examples, named, max_length, batch_size, on_progress, must_differ=True)


def _log_probs(
    model: PreTrainedModel,
    tokenizer: Any,
    examples: Sequence[Example],
    continuations: Sequence[Sequence[str]],
    max_length: int,
    batch_size: int,
    on_progress: OnProgress | None,
    *,
    must_differ: bool = False,
) -> list[list[float]]:
    """(examples, their continuations) log-probabilities; all continuations of all examples share the batches."""
    texts = [
        Example(f"{example.id}, choice {number}", example.prompt, _delimiter(example.prompt) + continuation)
        for example, group in zip(examples, continuations, strict=True)
        for number, continuation in enumerate(group)
    ]
    tokens = tokenize(texts, tokenizer, max_length, ends_with_eos=False)
    groups = _grouped(tokens, [len(group) for group in continuations])
    if must_differ:
        for example, named, group in zip(examples, continuations, groups, strict=True):
            _check_told_apart(example, named, group)
    scores = iter(target_nll(model, tokens, batch_size=batch_size, on_progress=on_progress))
    return [[-next(scores).nll_sum for _ in group] for group in groups]


def _delimiter(prompt: str) -> str:
    return "" if prompt[-1:].isspace() else DELIMITER


def _grouped(tokens: Sequence[TokenizedExample], sizes: Sequence[int]) -> list[list[TokenizedExample]]:
    rest = iter(tokens)
    return [[next(rest) for _ in range(size)] for size in sizes]


def _check(example: Example) -> None:
    if len(example.choices) < 2 or len(example.choices) > len(ascii_uppercase):
        raise DataError(
            f"{example.id} has {len(example.choices)} choices; to choose, it needs 2 to {len(ascii_uppercase)}."
        )
    if "" in example.choices:
        raise DataError(
            f"{example.id}: choice {example.choices.index('')} is empty, so it has neither a likelihood nor a length: "
            "mend the row or leave it out."
        )


def _check_told_apart(example: Example, named: Sequence[str], group: Sequence[TokenizedExample]) -> None:
    if len({tuple(tokens.input_ids) for tokens in group}) < len(group):
        pieces = [tokens.input_ids[tokens.target_start :] for tokens in group]
        raise DataError(
            f"{example.id}: this tokenizer gives two of {', '.join(named)} the same tokens (token ids {pieces}), so "
            "their likelihoods cannot be compared."
        )
