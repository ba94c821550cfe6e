"""Texts as vectors, for MAUVE: the last hidden states of any causal LM, read-only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from lossbench.evaluation.batching import core, device_of, evaluating, in_batches

if TYPE_CHECKING:
    from transformers import PreTrainedModel

Pooling = Literal["last", "mean"]


@dataclass(frozen=True)
class Featurizer:
    """`name` goes into the name of the metric: values by different featurizers are not comparable."""

    name: str
    model: PreTrainedModel
    tokenizer: Any
    pooling: Pooling = "last"

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Token ids of each text, with the tokenizer's own BOS and nothing at the end."""
        return self.tokenizer(list(texts))["input_ids"] if texts else []

    def features(self, token_ids: Sequence[Sequence[int]], batch_size: int = 8) -> NDArray[np.float32]:
        """(texts, hidden size) float32: the model's last hidden state, after its final norm, of the last token or as
        the mean over the tokens. Padding stands on the right, where a causal model does not look."""

        def work(batch: list[int]) -> list[NDArray[np.float32]]:
            return self._features([token_ids[number] for number in batch])

        longest_first = sorted(range(len(token_ids)), key=lambda number: -len(token_ids[number]))
        with evaluating(self.model):
            found = in_batches([longest_first], batch_size, work, tokens=lambda row: 1)
        size = core(self.model).config.get_text_config().hidden_size
        return np.stack(found) if found else np.zeros((0, size), dtype=np.float32)

    def _features(self, rows: list[Sequence[int]]) -> list[NDArray[np.float32]]:
        lengths = torch.tensor([len(row) for row in rows])
        width = int(lengths.max())
        ids = torch.tensor([[*row, *([0] * (width - len(row)))] for row in rows])
        mask = (torch.arange(width) < lengths[:, None]).long()
        device = device_of(self.model)
        body: Any = core(self.model).base_model
        states = body(input_ids=ids.to(device), attention_mask=mask.to(device)).last_hidden_state.float().cpu()
        if self.pooling == "last":
            found = states[torch.arange(len(rows)), lengths - 1]
        else:
            found = (states * mask[..., None]).sum(1) / lengths[:, None]
        return list(found.numpy())


def check_available(path: str) -> None:
    """Raise a sentence that says how to get the featurizer, unless it can be loaded from here."""
    from lossbench.hub import check_reachable
    from lossbench.models.locate import folder_of

    if folder_of(path) is None:
        check_reachable(path, "model", None, "or name a folder (evaluation.mauve.featurizer) that holds it")


def load(path: str, *, pooling: Pooling = "last", revision: str | None = None, device: str = "cpu") -> Featurizer:
    """A featurizer from a folder, a hub id such as `gpt2-large`, or `lossbench:tiny`; its name is the last part of
    `path`, followed by `,mean` where the states are averaged."""
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging as transformers_logging

    from lossbench.errors import ModelError
    from lossbench.models.locate import folder_of

    transformers_logging.disable_progress_bar()
    source = str(folder_of(path) or path)
    try:
        tokenizer = AutoTokenizer.from_pretrained(source, revision=revision)
        model = AutoModelForCausalLM.from_pretrained(source, revision=revision, dtype=torch.float32)
    except (OSError, ValueError) as error:
        raise ModelError(f"The featurizer {path!r} of MAUVE cannot be loaded: {error}") from error
    name = path.rpartition(":")[2] if path.startswith("lossbench:") else Path(path).name
    for weight in model.parameters():
        weight.requires_grad_(False)
    torch.nn.Module.to(model, device)
    return Featurizer(name if pooling == "last" else f"{name},{pooling}", model.eval(), tokenizer, pooling)
