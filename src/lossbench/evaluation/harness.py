"""A model in lm-evaluation-harness (https://github.com/EleutherAI/lm-evaluation-harness), for the tasks that it has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lossbench.errors import ConfigError


def check_available() -> None:
    """Raise `ConfigError` where the harness is not installed."""
    _harness()


def evaluate(
    model: Any, tokenizer: Any, tasks: Sequence[str], *, limit: int | None = None, batch_size: int = 8
) -> dict[str, float]:
    """The harness's own numbers, named `harness/TASK/METRIC,FILTER`; `model` is a causal LM in memory, LoRA included.

    The harness chooses prompts, shots, stops and normalisation, so its numbers stand beside ours and not among them.
    """
    lm_eval, huggingface = _harness()
    wrapped = huggingface.HFLM(pretrained=model, tokenizer=tokenizer, batch_size=batch_size)
    found = lm_eval.simple_evaluate(model=wrapped, tasks=list(tasks), limit=limit)
    return {
        f"harness/{task}/{name}": float(value)
        for task, values in found["results"].items()
        for name, value in values.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }


def _harness() -> tuple[Any, Any]:
    try:
        import lm_eval
        from lm_eval.models import huggingface
    except ImportError as error:
        raise ConfigError(
            f"--harness needs lm-evaluation-harness, and {error.name} is not installed: "
            "pip install 'lossbench[harness]', or evaluate without --harness."
        ) from error
    return lm_eval, huggingface
