"""What a run keeps on disk of its weights: the best ones, and enough to go on after an interruption.

checkpoints/best.safetensors        weights of the step that is evaluated; best-STEP.safetensors while training runs
checkpoints/last.safetensors        everything at the last safe point; removed when the run has finished
checkpoints/previous.safetensors    the same of the safe point before, in case that the last one is damaged
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor

from lossbench.training.state import DamagedError, read_state, write_state


@dataclass
class BestCheckpoint:
    """Keeps the weights of the step with the best value of `criterion`."""

    folder: Path
    criterion: str = "val/nll"
    higher_is_better: bool = False
    writes: bool = True  # false on all ranks but the first
    step: int = -1
    value: float = float("nan")

    @property
    def file(self) -> Path:
        """Where the best weights are once the choice is final."""
        return self.folder / "best.safetensors"

    def of(self, step: int) -> Path:
        """Where the weights of a step are while training runs: last.safetensors may refer to an earlier best one."""
        return self.folder / f"best-{step}.safetensors"

    def is_better(self, value: float) -> bool:
        """Whether a value is better than every earlier one; NaN never is."""
        if self.step < 0:
            return value == value
        return value > self.value if self.higher_is_better else value < self.value

    def offer(self, model: nn.Module, step: int, value: float) -> bool:
        """Save what training changes in `model` if `value` is better than every earlier one; says whether it was."""
        if not self.is_better(value):
            return False
        weights = weights_of(model)
        if self.writes:
            write_state(self.of(step), {**weights, "step": step})
        self.step, self.value = step, value
        return True

    def restore(self, model: nn.Module) -> None:
        """Put the best weights back into `model`."""
        running = self.of(self.step)
        load_weights(model, read_state(running if running.exists() else self.file))

    def settle(self) -> None:
        """The choice is final: give the best weights their lasting name."""
        if self.of(self.step).exists():
            self.of(self.step).replace(self.file)

    def is_there(self, step: int) -> bool:
        """Whether the best weights that a checkpoint refers to are on disk."""
        try:
            return self.of(step).exists() or read_state(self.file)["step"] == step
        except DamagedError:
            return False

    def forget(self, but: Iterable[int]) -> None:
        """Remove the weights of all steps `but` these."""
        for file in self.folder.glob("best-*.safetensors"):
            if file not in [self.of(step) for step in but]:
                file.unlink()


class Checkpoints:
    """The two last safe points of a run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.last, self.previous = folder / "last.safetensors", folder / "previous.safetensors"
        self._new = folder / "new.safetensors"
        self._best_of_last = -1

    @staticmethod
    def exist(folder: Path) -> bool:
        """Whether there is something to go on from in a run's folder `checkpoints`."""
        checkpoints = Checkpoints(folder)
        return any(file.exists() for file in (checkpoints.last, checkpoints._new, checkpoints.previous))

    def write(self, state: Mapping[str, Any], best: BestCheckpoint) -> None:
        """Make `state` the last one and the last one the previous one. A crash anywhere leaves one of them whole."""
        write_state(self._new, {**state, "best": {"step": best.step, "value": best.value}})
        if self.last.exists():
            self.last.replace(self.previous)
        self._new.replace(self.last)
        best.forget(but={self._best_of_last, best.step})
        self._best_of_last = best.step

    def read(self, best: BestCheckpoint) -> tuple[dict[str, Any] | None, list[str]]:
        """The newest usable state, or None; and a sentence for each one that could not be used. Sets `best`."""
        complaints = []
        for file in (self.last, self._new, self.previous):
            if not file.exists():
                continue
            try:
                state = read_state(file)
                step = state["best"]["step"]
                if step >= 0 and not best.is_there(step):
                    raise DamagedError(f"{file} belongs to the best weights of step {step}, which are not there.")
            except DamagedError as error:
                complaints.append(f"{error} Going on from the checkpoint before it.")
                continue
            best.step, best.value = step, state["best"]["value"]
            self._best_of_last = step
            return state, complaints
        return None, complaints

    def discard(self) -> None:
        """The run has finished: nothing will go on from here."""
        for file in (self.last, self._new, self.previous, *self.folder.glob("best-*.safetensors")):
            file.unlink(missing_ok=True)


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    """What training changes: trainable parameters, and the buffers of losses that keep a state; whole where sharded.

    Every rank must call it where the model is sharded.
    """
    return {name: whole(weight.detach()) for name, weight in _state(model)}


def load_weights(model: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Put back what `weights_of` gave."""
    with torch.no_grad():
        for name, weight in _state(model):
            weight.copy_(like(weight, weights[name]))


def trainable(model: nn.Module) -> list[tuple[str, nn.Parameter]]:
    """Parameters that an optimizer changes; tied ones come once."""
    return [(name, weight) for name, weight in model.named_parameters() if weight.requires_grad]


def whole(tensor: Tensor) -> Tensor:
    """The whole of a tensor of which ranks hold parts, which all of them must ask for; else the tensor itself."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def like(template: Tensor, value: Tensor) -> Tensor:
    """A whole tensor, sharded as `template` is."""
    if not isinstance(template, DTensor):
        return value
    return distribute_tensor(value.to(template.device), template.device_mesh, template.placements)


def _state(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    yield from trainable(model)
    objective = getattr(model, "objective", None)
    if objective is not None:
        yield from objective.state_dict(prefix="objective.", keep_vars=True).items()
