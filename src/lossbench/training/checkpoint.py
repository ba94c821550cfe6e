"""The trained weights on disk: only those that training changes, in safetensors, whole or absent."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import nn


@dataclass
class BestCheckpoint:
    """Keeps the trainable weights of the step with the best (lowest) value of `criterion`."""

    folder: Path
    criterion: str = "val/nll"
    step: int = -1
    value: float = float("inf")

    @property
    def file(self) -> Path:
        return self.folder / "best.safetensors"

    def offer(self, model: nn.Module, step: int, value: float) -> bool:
        """Save `model` if `value` is better than every earlier one; says whether it was."""
        if not value < self.value:
            return False
        self.folder.mkdir(parents=True, exist_ok=True)
        temporary = self.file.with_suffix(".tmp")
        save_file({name: weight.detach().contiguous() for name, weight in trainable(model)}, temporary)
        temporary.replace(self.file)
        self.step, self.value = step, value
        return True

    def restore(self, model: nn.Module) -> None:
        """Put the best weights back into `model`."""
        saved = load_file(self.file)
        with torch.no_grad():
            for name, weight in trainable(model):
                weight.copy_(saved[name])


def trainable(model: nn.Module) -> list[tuple[str, nn.Parameter]]:
    """Parameters that an optimizer changes; tied ones come once."""
    return [(name, weight) for name, weight in model.named_parameters() if weight.requires_grad]
