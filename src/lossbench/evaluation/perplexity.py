"""Negative log-likelihood and perplexity: sums of nats over numbers of tokens, never a mean of means.

    PPL = exp( sum_t -log p(x_t | x_<t) / N ),   t over the N scored tokens of the whole split

The log-softmax is taken in float32 or better and summed in float64.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from lossbench.data.tokens import TokenizedExample
from lossbench.errors import ConfigError, DataError, ModelError
from lossbench.evaluation.batching import OnProgress, accepts, device_of, evaluating, in_batches
from lossbench.models.load import context_window

if TYPE_CHECKING:
    from transformers import PreTrainedModel

SURE = 0.99
CHUNK_ELEMENTS = 2**24
"""So many logits go through the log-softmax at once (64 MiB in float32), whatever the vocabulary."""


@dataclass(frozen=True)
class TargetScore:
    """Sums over the scored tokens of one example, in nats."""

    nll_sum: float
    n_tokens: int
    last_nll: float  # of the last target token, which is EOS where the task ends its targets with it
    entropy_sum: float  # of the predicted distributions
    n_correct: int  # tokens that are the most probable one
    max_prob_sum: float = 0.0  # of the most probable token
    n_sure: int = 0  # predictions whose most probable token has p > 0.99
    rank_sum: int = 0  # of the target among all tokens, from 1; equal logits share the better rank
    min_margin: float = 0.0  # smallest lead of the most probable token on the next, in nats


@dataclass(frozen=True)
class RollingScore:
    """Sums over the scored tokens of one text, in nats."""

    nll_sum: float
    n_scored: int

    @property
    def ppl(self) -> float:
        return ppl(self.nll_sum, self.n_scored)


def ppl(nll_sum: float, n_tokens: int) -> float:
    """exp(nll_sum / n_tokens); infinite where it exceeds the range of a float."""
    try:
        return math.exp(nll_sum / n_tokens)
    except OverflowError:
        return math.inf


def bits_per_byte(nll_sum: float, n_bytes: int) -> float:
    """nll_sum / ln 2 / n_bytes, with the UTF-8 bytes of exactly the scored text: comparable across tokenizers."""
    return nll_sum / math.log(2) / n_bytes


def byte_ppl(nll_sum: float, n_bytes: int) -> float:
    """exp(nll_sum / n_bytes): perplexity a UTF-8 byte of the scored text, 2 to the power of its bits per byte."""
    return ppl(nll_sum, n_bytes)


def word_ppl(nll_sum: float, n_words: int) -> float:
    """exp(nll_sum / n_words): perplexity a word, whatever the tokenizer; say how words were counted."""
    return ppl(nll_sum, n_words)


def lm_eval_words(page: str) -> int:
    """Words of a page as lm-evaluation-harness counts them for WikiText: pieces between runs of white space, with an
    empty one more where the page begins or ends with a space."""
    return len(re.split(r"\s+", page))


def target_nll(
    model: PreTrainedModel,
    examples: Sequence[TokenizedExample],
    *,
    batch_size: int = 8,
    on_progress: OnProgress | None = None,
) -> list[TargetScore]:
    """Score `input_ids[target_start:]` of each example given all that stands before, in the order of the examples.

    A first token of the text has nothing before it and is not scored. The scores do not depend on `batch_size` beyond
    the rounding of the model's own arithmetic. Raises `DataError` for an example with nothing to score or longer than
    the context window.
    """
    for example in examples:
        _check(example, context_window(model))
    return _score_all(model, examples, batch_size, on_progress)


def rolling(
    model: PreTrainedModel,
    token_ids: Sequence[int],
    max_length: int,
    stride: int,
    bos: int | Literal["each_window"] | None = None,
    *,
    batch_size: int = 8,
) -> RollingScore:
    """Score one long text in windows of `max_length` tokens that begin `stride` tokens apart.

    Each window scores the tokens that no window before it covered, with all of the window before them as context; the
    last one ends where the text ends. `bos` says what the first token of a window sees:

    None            nothing: the first token of the text is unscored, and with stride = max_length of every window
    an id           this token is put before the text, once; windows run over the longer text
    "each_window"   the model's BOS stands before every window, whose text is then max_length - 1 tokens long (as is the
                    stride at most); every token is scored
    """
    text = [int(token) for token in token_ids]
    prefix = _bos_of(model) if bos == "each_window" else bos
    _check_windows(model, text, max_length, stride, prefix)
    start = [] if prefix is None else [prefix]
    windows = []
    if bos == "each_window":
        body = max_length - 1
        for begin, end, seen in _windows(len(text), body, min(stride, body)):
            windows.append(TokenizedExample(f"window at {begin}", [*start, *text[begin:end]], 1 + seen - begin))
    else:
        text = start + text
        for begin, end, seen in _windows(len(text), max_length, stride):
            windows.append(TokenizedExample(f"window at {begin}", text[begin:end], seen - begin))
    return _sum(target_nll(model, [w for w in windows if _first_scored(w) < len(w.input_ids)], batch_size=batch_size))


def lm_eval_rolling(
    model: PreTrainedModel, token_ids: Sequence[int], max_length: int, prefix: int, *, batch_size: int = 8
) -> RollingScore:
    """Score one long text as lm-evaluation-harness does (`get_rolling_token_windows` with context_len = 1).

    The model reads `prefix` (BOS if the tokenizer has one, else EOS) and the text in pieces of `max_length` tokens,
    each after one token of context; the last piece is read with as much context as makes it `max_length` long. Every
    token is scored once. Differs from `rolling` in that the token before a piece takes no room of the window.
    """
    text = [prefix, *(int(token) for token in token_ids)]
    _check_windows(model, text[1:], max_length, max_length, prefix)
    windows = []
    for seen in range(1, len(text), max_length):
        end = min(seen + max_length, len(text))
        begin = max(0, end - max_length - 1)
        windows.append(TokenizedExample(f"window at {begin}", text[begin:end], seen - begin))
    return _sum(_score_all(model, windows, batch_size, None))


def _sum(scores: Sequence[TargetScore]) -> RollingScore:
    return RollingScore(math.fsum(score.nll_sum for score in scores), sum(score.n_tokens for score in scores))


def _score_all(
    model: PreTrainedModel, examples: Sequence[TokenizedExample], batch_size: int, on_progress: OnProgress | None
) -> list[TargetScore]:
    def score(batch: list[int]) -> list[TargetScore]:
        return _score(model, [examples[number] for number in batch])

    longest_first = sorted(range(len(examples)), key=lambda number: -len(examples[number].input_ids))
    with evaluating(model):
        return in_batches([longest_first], batch_size, score, tokens=lambda s: s.n_tokens, on_progress=on_progress)


def _windows(length: int, width: int, stride: int) -> list[tuple[int, int, int]]:
    """(begin, end, number of tokens covered before) of each window, up to the first that reaches the end."""
    found = []
    begin = seen = 0
    while seen < length:
        end = min(begin + width, length)
        found.append((begin, end, seen))
        begin, seen = begin + stride, end
    return found


def _score(model: PreTrainedModel, examples: list[TokenizedExample]) -> list[TargetScore]:
    lengths = torch.tensor([len(example.input_ids) for example in examples])
    firsts = torch.tensor([_first_scored(example) for example in examples])
    width, before = int(lengths.max()), int(firsts.min()) - 1
    # Padding stands on the right: in a causal model nothing before it can see it, and positions need no care.
    ids = torch.tensor([example.input_ids + [0] * (width - len(example.input_ids)) for example in examples])
    places = torch.arange(width)
    mask = (places < lengths[:, None]).long()
    scored = (places >= firsts[:, None]) & (places < lengths[:, None])

    device = device_of(model)
    read = width - 1  # nothing is predicted from a last token
    few = {"logits_to_keep": read - before} if accepts(model, "logits_to_keep") else {}
    inputs = {"input_ids": ids[:, :read].to(device), "attention_mask": mask[:, :read].to(device)}
    logits = model(**inputs, **few).logits[:, before - read :]
    rows = logits[scored[:, before + 1 :].to(device)]  # (N, V): the row before each scored token
    statistics = _token_statistics(rows, ids[scored].to(device)).cpu()

    found = []
    for part in statistics.split((lengths - firsts).tolist()):
        nll, entropy, correct, top, margin, rank = part.unbind(-1)
        found.append(
            TargetScore(
                nll_sum=nll.sum().item(),
                n_tokens=len(nll),
                last_nll=nll[-1].item(),
                entropy_sum=entropy.sum().item(),
                n_correct=int(correct.sum()),
                max_prob_sum=top.sum().item(),
                n_sure=int((top > SURE).sum()),
                rank_sum=int(rank.sum()),
                min_margin=margin.min().item(),
            )
        )
    return found


def _token_statistics(logits: Tensor, targets: Tensor) -> Tensor:
    """(N, 6) float64 from logits (N, V), targets (N,): NLL; entropy of the row; whether the target is its maximum; the
    probability of its maximum, and the lead in log p on the next; the rank of the target, from 1."""
    found = []
    size = max(1, CHUNK_ELEMENTS // logits.shape[-1])
    for rows, wanted in zip(logits.split(size), targets.split(size), strict=True):
        log_p = (rows if rows.dtype == torch.float64 else rows.float()).log_softmax(-1)
        nll = -log_p.gather(-1, wanted[:, None]).squeeze(-1)
        entropy = torch.special.entr(log_p.exp()).sum(-1)
        correct = log_p.argmax(-1) == wanted
        two = log_p.topk(min(2, log_p.shape[-1]), dim=-1).values
        rank = 1 + (log_p > -nll[:, None]).sum(-1)
        parts = (nll, entropy, correct, two[:, 0].exp(), two[:, 0] - two[:, -1], rank)
        found.append(torch.stack([part.cpu().double() for part in parts], dim=-1))
    return torch.cat(found)


def _first_scored(example: TokenizedExample) -> int:
    return max(example.target_start, 1)


def _check(example: TokenizedExample, window: int | None) -> None:
    length = len(example.input_ids)
    if _first_scored(example) >= length:
        raise DataError(
            f"{example.id}: there is no token to score after position {example.target_start} of its {length} tokens."
        )
    if window is not None and length > window:
        raise DataError(
            f"{example.id} has {length} tokens, more than the model's context window of {window}: tokenise it with "
            f"max_length={window}, or score it in windows (perplexity.rolling)."
        )


def _check_windows(model: PreTrainedModel, text: list[int], max_length: int, stride: int, prefix: int | None) -> None:
    window = context_window(model)
    if max_length < 2 or (window is not None and max_length > window):
        limit = "" if window is None else f" and at most {window}, the model's context window"
        raise ConfigError(f"Windows must be at least 2 tokens long{limit}, got max_length={max_length}.")
    if not 1 <= stride <= max_length:
        raise ConfigError(
            f"The stride must lie between 1 and max_length={max_length}, got {stride}: tokens would be missed."
        )
    if prefix is not None and text[:1] == [prefix]:
        raise DataError(
            f"The text already begins with BOS (id {prefix}), and bos would add a second one: pass the text without "
            "it, or bos=None."
        )
    if len(text) + (prefix is not None) < 2:
        raise DataError(
            f"A text of {len(text)} tokens has nothing to score with bos={prefix}: it needs a token before one."
        )


def _bos_of(model: PreTrainedModel) -> int:
    bos = getattr(model.config, "bos_token_id", None)
    if bos is None:
        raise ModelError(
            'bos="each_window" needs a model with a beginning-of-sequence token, and this one names no bos_token_id in '
            "its configuration: pass bos=None, or the id of the token to begin with."
        )
    return bos
