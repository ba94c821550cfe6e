"""Text generated from token prompts: greedy or sampled without bias, the same at any batch size in float32.

`transformers` generates. What is done here is what its callers get wrong: left padding with an explicit mask and
positions, a prompt cut off by its number of tokens, string stops for every row, samples that belong to an example
rather than to a batch, and none of the model's own generation settings.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Literal

import torch
from torch import Tensor
from transformers import GenerationConfig, LogitsProcessor, PreTrainedModel, StoppingCriteria

from lossbench.errors import ConfigError, DataError
from lossbench.evaluation.batching import OnProgress, accepts, core, device_of, evaluating, in_batches
from lossbench.models.load import context_window

StopReason = Literal["eos", "stop_string", "length"]


@dataclass(frozen=True)
class Completion:
    """What a model wrote after one prompt.

    `token_ids` are the generated tokens, the end-of-sequence token or the one that completed a stop string included;
    `text` is what they say without special tokens, cut before the first stop string.
    """

    token_ids: list[int]
    text: str
    stop_reason: StopReason

    @property
    def n_new_tokens(self) -> int:
        return len(self.token_ids)


def generate(
    model: PreTrainedModel,
    tokenizer: Any,
    prompts: Sequence[Sequence[int]],
    *,
    max_new_tokens: int,
    stop_strings: Sequence[str] = (),
    batch_size: int = 8,
    sample_seed: int | None = None,
    temperature: float = 1.0,
    on_progress: OnProgress | None = None,
) -> list[Completion]:
    """One completion for each prompt (token ids), in the order of the prompts.

    Without `sample_seed` the most probable token is taken at every step. With it, tokens are drawn from the model's
    whole distribution softmax(logits / temperature), and the draws of a prompt depend on `sample_seed` and on its place
    in `prompts` alone: not on the batch, and not on the global generator, which is left untouched.

    A row ends with the model's end-of-sequence token, with a stop string in its text, after `max_new_tokens`, or at the
    end of the context window; the last two are the stop reason `length`. Raises `DataError` for a prompt that is empty
    or fills the context window, `ConfigError` for impossible settings, `ModelError` if one example exceeds the memory.
    """
    _check_settings(max_new_tokens, batch_size, sample_seed, temperature)
    room = [_room(model, number, len(prompt), max_new_tokens) for number, prompt in enumerate(prompts)]
    # Longest first, so that memory runs out at once or never. Rows near the end of the window may write less than the
    # others, and a batch shares one limit.
    order = sorted(range(len(prompts)), key=lambda number: (room[number], -len(prompts[number])))
    ends = _Ends.of(model, tokenizer, stop_strings)

    def complete(batch: list[int]) -> list[Completion]:
        sampler = None if sample_seed is None else _Sampler(sample_seed, batch, room[batch[0]], temperature)
        return _complete(model, tokenizer, [prompts[n] for n in batch], room[batch[0]], ends, sampler)

    with evaluating(model), _no_settings_of_its_own(model):
        groups = [list(group) for _, group in groupby(order, key=room.__getitem__)]
        return in_batches(groups, batch_size, complete, tokens=lambda c: c.n_new_tokens, on_progress=on_progress)


def _complete(
    model: PreTrainedModel,
    tokenizer: Any,
    prompts: Sequence[Sequence[int]],
    limit: int,
    ends: _Ends,
    sampler: _Sampler | None,
) -> list[Completion]:
    width = max(map(len, prompts))
    padding = [width - len(prompt) for prompt in prompts]
    ids = torch.tensor([[ends.pad] * pad + list(prompt) for pad, prompt in zip(padding, prompts, strict=True)])
    mask = (torch.arange(width) >= torch.tensor(padding)[:, None]).long()
    inputs = {"attention_mask": mask}
    if accepts(model, "position_ids"):
        inputs["position_ids"] = (mask.cumsum(-1) - 1).clamp(min=0)  # learned positions must not count the padding
    device = device_of(model)
    watch = _StopStrings(tokenizer, ends.strings, ends.may_complete, width) if ends.strings else None
    settings = GenerationConfig(
        max_new_tokens=limit,
        do_sample=False,
        num_beams=1,
        use_cache=True,
        pad_token_id=ends.pad,
        eos_token_id=sorted(ends.eos | ends.special_stops) or None,
    )
    written: Tensor = model.generate(  # type: ignore[operator]  # transformers' mixin is untyped here
        ids.to(device),
        generation_config=settings,
        logits_processor=[sampler] if sampler else [],
        stopping_criteria=[watch] if watch else [],
        **{name: value.to(device) for name, value in inputs.items()},
    )
    rows = written[:, width:].tolist()
    stopped = watch.stopped if watch else {}
    return [_completion(tokenizer, row, stopped.get(number), ends) for number, row in enumerate(rows)]


def _completion(tokenizer: Any, row: list[int], stopped: int | None, ends: _Ends) -> Completion:
    """Cut a row of new tokens where it ended; after that stand only padding tokens."""
    reason: StopReason = "length"
    for place, token in enumerate(row[:stopped]):
        if token in ends.eos or token in ends.special_stops:
            row, stopped = row[: place + 1], None
            reason = "eos" if token in ends.eos else "stop_string"
            break
    if stopped is not None:
        row, reason = row[:stopped], "stop_string"
    text = tokenizer.decode(row, skip_special_tokens=True, clean_up_tokenization_spaces=False)
    places = [place for stop in ends.strings if (place := text.find(stop)) >= 0]
    if places:
        text, reason = text[: min(places)], "stop_string"
    return Completion(row, text, reason)


@dataclass(frozen=True)
class _Ends:
    """Everything that can end a row. Stops that are special tokens end it as tokens, since they leave no text."""

    eos: frozenset[int]
    special_stops: frozenset[int]
    strings: tuple[str, ...]
    may_complete: Tensor | None
    """(V,) bool: the tokens whose text holds the last character of a stop string; None: any token may."""
    pad: int

    @classmethod
    def of(cls, model: PreTrainedModel, tokenizer: Any, stop_strings: Sequence[str]) -> _Ends:
        if "" in stop_strings:
            raise ConfigError("An empty stop string would end every text at once: leave it out of stop_strings.")
        own = core(model).generation_config
        named = [tokenizer.eos_token_id, own.eos_token_id if own is not None else None]
        eos = frozenset(id for ids in named if ids is not None for id in (ids if isinstance(ids, list) else [ids]))
        special = dict(zip(tokenizer.all_special_tokens, tokenizer.all_special_ids, strict=True))
        strings = tuple(stop for stop in stop_strings if stop not in special)
        return cls(
            eos=eos,
            special_stops=frozenset(special[stop] for stop in stop_strings if stop in special) - eos,
            strings=strings,
            may_complete=_may_complete(tokenizer, strings, core(model).config.get_text_config().vocab_size),
            # The mask hides padding, so any token will do where there is none.
            pad=next((id for id in (tokenizer.pad_token_id, *sorted(eos)) if id is not None), 0),
        )


def _may_complete(tokenizer: Any, strings: Sequence[str], vocabulary: int) -> Tensor | None:
    last = {stop[-1] for stop in strings}
    if not strings or any(character == " " or not character.isascii() for character in last):
        return None  # decoders strip spaces, and other characters can be spread over tokens
    texts = tokenizer.batch_decode([[token] for token in range(len(tokenizer))], clean_up_tokenization_spaces=False)
    flags = [not last.isdisjoint(text) for text in texts][:vocabulary]
    return torch.tensor(flags + [False] * (vocabulary - len(flags)))


class _StopStrings(StoppingCriteria):
    """Ends the rows in whose new text a stop string has been completed; `stopped` says after how many new tokens."""

    def __init__(self, tokenizer: Any, strings: Sequence[str], may_complete: Tensor | None, width: int) -> None:
        self.tokenizer, self.strings, self.may_complete, self.width = tokenizer, strings, may_complete, width
        # A stop string has at most this many tokens; the others keep decoders that strip a first space away from it.
        self.tail = max(len(stop.encode()) for stop in strings) + 4
        self.stopped: dict[int, int] = {}

    def __call__(self, input_ids: Tensor, scores: Any, **kwargs: Any) -> Tensor:
        new = input_ids.shape[1] - self.width
        done = torch.zeros(len(input_ids), dtype=torch.bool)
        done[list(self.stopped)] = True
        if self.may_complete is None:
            suspects = list(range(len(input_ids)))
        else:
            self.may_complete = self.may_complete.to(input_ids.device)
            suspects = self.may_complete[input_ids[:, -1]].nonzero().flatten().tolist()
        for row in suspects:
            if not done[row] and self._is_complete(input_ids[row, -min(new, self.tail) :]):
                self.stopped[row] = new
                done[row] = True
        return done.to(input_ids.device)

    def _is_complete(self, tokens: Tensor) -> bool:
        text = self.tokenizer.decode(tokens.tolist(), clean_up_tokenization_spaces=False)
        return any(stop in text for stop in self.strings)


class _Sampler(LogitsProcessor):
    """Draws from softmax(logits / temperature) and leaves the drawn token alone with a finite score.

    The sampler of `transformers` reads the global generator, so that a text depends on the batch around it, and keeps
    the 50 best tokens unless told otherwise. Here each row has its own uniform numbers, one a token, and takes the
    token in whose interval of the cumulative distribution (float64) its number falls: no token is cut off.
    """

    def __init__(self, seed: int, numbers: Sequence[int], limit: int, temperature: float) -> None:
        self.temperature = temperature
        self.uniform = torch.stack([_uniform(seed, number, limit) for number in numbers], dim=1)  # (limit, rows)
        self.step = 0

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        exact = torch.float32 if scores.device.type == "mps" else torch.float64  # mps has no float64
        cumulative = (scores / self.temperature).softmax(-1).cumsum(-1, dtype=exact)
        number = self.uniform[self.step, :, None].to(cumulative)
        self.step += 1
        drawn = torch.searchsorted(cumulative, number * cumulative[:, -1:], right=True)
        drawn.clamp_(max=scores.shape[-1] - 1)
        return torch.full_like(scores, float("-inf")).scatter_(-1, drawn, 0.0)


def _uniform(seed: int, number: int, count: int) -> Tensor:
    digest = hashlib.sha256(f"{seed}:{number}".encode()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest[:8], "big") >> 1)
    return torch.rand(count, generator=generator, dtype=torch.float64)


@contextmanager
def _no_settings_of_its_own(model: PreTrainedModel) -> Iterator[None]:
    """`generate` fills what it is not told from the model's generation_config: penalties, forced tokens, top_k."""
    holders = {id(holder): holder for holder in (model, core(model))}.values()
    kept = [(holder, holder.generation_config) for holder in holders]
    for holder, _ in kept:
        holder.generation_config = GenerationConfig()
    try:
        yield
    finally:
        for holder, settings in kept:
            holder.generation_config = settings


def _check_settings(max_new_tokens: int, batch_size: int, sample_seed: int | None, temperature: float) -> None:
    if max_new_tokens < 1 or batch_size < 1:
        raise ConfigError(
            f"Generation needs max_new_tokens and batch_size of at least 1, got {max_new_tokens} and {batch_size}."
        )
    if not temperature > 0:
        raise ConfigError(
            f"The temperature must be above 0, got {temperature}; for greedy decoding give no sample_seed."
        )
    if sample_seed is None and temperature != 1:
        raise ConfigError(
            f"A temperature of {temperature} changes nothing in greedy decoding: give a sample_seed, or leave it at 1."
        )


def _room(model: PreTrainedModel, number: int, length: int, max_new_tokens: int) -> int:
    window = context_window(model)
    if length == 0:
        raise DataError(
            f"Prompt {number} has no token, so there is nothing to continue: begin it with BOS or with text."
        )
    if window is None:
        return max_new_tokens
    if length >= window:
        raise DataError(
            f"Prompt {number} has {length} tokens, which leaves no room for an answer in the model's context window of "
            f"{window}: shorten it, or take a model with a longer context window."
        )
    return min(max_new_tokens, window - length)
