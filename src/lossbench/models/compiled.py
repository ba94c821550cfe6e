"""torch.compile for the time of training."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def compiled(model: Any, wanted: bool, backend: str = "inductor") -> Iterator[None]:
    """Within, the body of a causal LM (all of it but the head) is compiled, if that is wanted.

    The head and the loss stay as they are: the head is taken out of the forward pass where the loss is fused with it.
    Shapes are dynamic, since every batch has its own length. Parameter names stay what they were. Afterwards the body
    runs as before, because generation, whose cache grows token by token, would compile again and again.
    """
    if not wanted:
        yield
        return
    causal = model.get_base_model() if hasattr(model, "get_base_model") else model
    body = causal.base_model
    body.compile(dynamic=True, backend=backend)
    try:
        yield
    finally:
        body._compiled_call_impl = None  # what nn.Module.compile sets; torch has no public way back
