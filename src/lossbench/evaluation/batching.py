"""What generation and scoring share: batches that shrink when memory runs out, and a model left as it was found."""

from __future__ import annotations

import inspect
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from lossbench.errors import ModelError

if TYPE_CHECKING:
    from transformers import PreTrainedModel

log = logging.getLogger(__name__)

OnProgress = Callable[[int, int, float], None]
"""Called after each batch with (examples done, examples in all, tokens per second so far)."""

Result = TypeVar("Result")


def in_batches(
    groups: Iterable[Sequence[int]],
    batch_size: int,
    work: Callable[[list[int]], list[Result]],
    *,
    tokens: Callable[[Result], int],
    on_progress: OnProgress | None = None,
) -> list[Result]:
    """`work` on every index of `groups`, at most `batch_size` of one group at a time; results in the indices' order.

    When the device runs out of memory the batch is halved, then and for all that follow; a single example that does not
    fit raises `ModelError`. `tokens` counts what a result cost, for the speed that `on_progress` shows.
    """
    waiting = [list(group) for group in groups]
    total = sum(map(len, waiting))
    results: dict[int, Result] = {}
    begun, spent = time.perf_counter(), 0
    for group in waiting:
        while group:
            batch, group = group[:batch_size], group[batch_size:]
            found = _unless_out_of_memory(work, batch)
            if found is None:
                if len(batch) == 1:
                    raise ModelError(
                        f"Out of device memory with a single example (number {batch[0]}): use a device with more "
                        "memory, a lower precision (trainer.precision), or shorter examples."
                    )
                batch_size = len(batch) // 2
                log.warning("Out of device memory with %d examples at once: going on with %d.", len(batch), batch_size)
                group = batch + group
                continue
            results.update(zip(batch, found, strict=True))
            spent += sum(map(tokens, found))
            if on_progress is not None:
                on_progress(len(results), total, spent / max(time.perf_counter() - begun, 1e-9))
    return [results[index] for index in sorted(results)]


def _unless_out_of_memory(work: Callable[[list[int]], list[Result]], batch: list[int]) -> list[Result] | None:
    try:
        return work(batch)
    except torch.OutOfMemoryError:
        found = None
    # Only here is the failed batch free: inside the except clause the traceback still holds its tensors.
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    return found


@contextmanager
def evaluating(model: torch.nn.Module) -> Iterator[None]:
    """Dropout off and no gradients inside; afterwards every module is in the mode in which it was, one by one.

    Not `inference_mode`: tensors that a model caches for itself, such as rotary tables, must serve training later.
    """
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module, mode in modes:
            module.training = mode


def core(model: Any) -> Any:
    """The causal language model itself where PEFT wraps it (adapters stay active inside)."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def accepts(model: PreTrainedModel, argument: str) -> bool:
    """Whether the model's `forward` has this argument."""
    return argument in inspect.signature(core(model).forward).parameters


def device_of(model: PreTrainedModel) -> torch.device:
    """Where the inputs go: the device of the first parameter."""
    return next(model.parameters()).device
