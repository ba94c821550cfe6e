"""Small random inputs with every kind of context: what the checks and the search for gradient twins run on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from .context import CONTEXT
from .inputs import IGNORE_INDEX


@dataclass(frozen=True)
class Sample:
    """Logits (..., V), labels (...) and the context that a loss asks for."""

    logits: Tensor
    labels: Tensor
    context: dict[str, Tensor]

    @property
    def valid(self) -> Tensor:
        return self.labels != IGNORE_INDEX

    def per_token(self) -> list[str]:
        """Names of the context that belongs to the tokens."""
        return [name for name in self.context if name in CONTEXT and CONTEXT[name].per == "token"]

    def tokens_at(self, index: Tensor) -> Sample:
        """The tokens at flat positions `index`, as a batch of one dimension."""
        dims = self.labels.dim()
        context = dict(self.context)
        for name in self.per_token():
            context[name] = context[name].reshape(-1, *context[name].shape[dims:])[index]
        flat = self.logits.reshape(-1, self.logits.shape[-1])
        return replace(self, logits=flat[index], labels=self.labels.reshape(-1)[index], context=context)

    def to(self, dtype: torch.dtype) -> Sample:
        """The same with logits and floating-point context of another type."""
        context = {k: v.to(dtype) if v.is_floating_point() else v for k, v in self.context.items()}
        return replace(self, logits=self.logits.to(dtype), context=context)


def sample(
    names: Iterable[str],
    shape: tuple[int, ...] = (3, 8),
    vocabulary: int = 11,
    *,
    ignored: float = 0.25,
    scale: float = 2.0,
    seed: int = 0,
    dtype: torch.dtype = torch.float64,
) -> Sample:
    """Random logits of standard deviation `scale`, labels with repeats and ignored ones, and the context `names`.

    The first token is valid and stands for a number; the sequences have different numbers of valid tokens.
    """
    generator = torch.Generator().manual_seed(seed)

    def normal(*size: int) -> Tensor:
        return torch.randn(*size, generator=generator, dtype=torch.float64)

    logits = scale * normal(*shape, vocabulary)
    labels = torch.randint(vocabulary, shape, generator=generator)
    tokens = labels.clone()
    numbers = torch.arange(vocabulary, dtype=torch.float64)
    numbers[vocabulary // 2 + 1 :] = float("nan")
    if labels.numel():
        labels.view(-1)[0] = tokens.view(-1)[0] = 0
        hidden = torch.rand(shape, generator=generator).view(-1) < ignored
        hidden[0] = False
        labels.view(-1)[hidden] = IGNORE_INDEX
    make = {
        "embedding": lambda: normal(vocabulary, 5),
        "token_values": lambda: numbers,
        "class_counts": lambda: torch.randint(1, 400, (vocabulary,), generator=generator),
        "token_frequencies": lambda: torch.randint(1, 400, (vocabulary,), generator=generator),
        "tokens": lambda: tokens,
        "ref_logits": lambda: logits + normal(*shape, vocabulary),
        "old_log_probs": lambda: -normal(*shape).abs() - 1,
        "head_logits": lambda: scale * normal(*shape, vocabulary),
    }
    return Sample(logits, labels, {name: make[name]() for name in names if name in make}).to(dtype)
