"""The state of training on disk: only what training changes, in safetensors, whole or absent."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import nn


@dataclass
class BestCheckpoint:
    """Keeps the state of the step with the best (lowest) value of `criterion`."""

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
        save_file({name: weight.detach().contiguous() for name, weight in _state(model)}, temporary)
        temporary.replace(self.file)
        self.step, self.value = step, value
        return True

    def restore(self, model: nn.Module) -> None:
        """Put the best weights back into `model`."""
        saved = load_file(self.file)
        with torch.no_grad():
            for name, weight in _state(model):
                weight.copy_(saved[name])


def _state(model: nn.Module) -> list[tuple[str, torch.Tensor]]:
    """What training changes: trainable parameters, and the buffers of losses that keep a state."""
    objective = getattr(model, "objective", None)
    buffers = objective.state_dict(prefix="objective.", keep_vars=True) if objective is not None else {}
    return [*trainable(model), *((name, buffer) for name, buffer in buffers.items())]


def trainable(model: nn.Module) -> list[tuple[str, nn.Parameter]]:
    """Parameters that an optimizer changes; tied ones come once."""
    return [(name, weight) for name, weight in model.named_parameters() if weight.requires_grad]
