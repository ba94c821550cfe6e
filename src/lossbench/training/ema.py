"""An exponential moving average of the weights that training changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn

from lossbench.training.checkpoint import trainable


class WeightAverage:
    """average <- d * average + (1 - d) * weights, after every optimizer step, over trainable weights alone.

    d is `decay`, but at most (1 + n) / (10 + n) after n updates, so that a short training is not an average of its
    start; the same rule as TensorFlow's ExponentialMovingAverage. The average is float32 whatever the weights are:
    small changes would vanish in bfloat16. torch's AveragedModel would copy frozen weights too, which LoRA cannot pay.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self._weights = dict(trainable(model))
        self._decay = decay
        self._average = {name: _wide(weight).clone() for name, weight in self._weights.items()}
        self._updates = 0

    @torch.no_grad()
    def update(self) -> None:
        """Take in the weights as they are; called once after every optimizer step."""
        decay = min(self._decay, (1 + self._updates) / (10 + self._updates))
        self._updates += 1
        current = [_wide(weight) for weight in self._weights.values()]
        self._follow_devices()
        get_ema_multi_avg_fn(decay)(list(self._average.values()), current, self._updates)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Within, the model's weights are the average: for evaluating and keeping them. Afterwards they are its own."""
        own = {name: weight.detach().clone() for name, weight in self._weights.items()}
        self._put(self._average)
        try:
            yield
        finally:
            self._put(own)

    def state_dict(self) -> dict[str, Tensor]:
        """What a resumable checkpoint must hold: the averages by the weights' names, and how many updates they had."""
        return {**self._average, "updates": torch.tensor(self._updates)}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Continue from `state_dict()`; a name too many or too few is a KeyError."""
        if names := set(state) ^ {*self._average, "updates"}:
            raise KeyError(f"averaged weights of another model: {', '.join(sorted(names))}")
        for name, average in self._average.items():
            average.copy_(state[name])
        self._updates = int(state["updates"])

    @torch.no_grad()
    def _put(self, values: Mapping[str, Tensor]) -> None:
        for name, weight in self._weights.items():
            weight.copy_(values[name])

    def _follow_devices(self) -> None:
        """The model may have moved to its device after this was made."""
        for name, weight in self._weights.items():
            if self._average[name].device != weight.device:
                self._average[name] = self._average[name].to(weight.device)


def _wide(weight: Tensor) -> Tensor:
    """The values in float32, or as they are where they are wider."""
    return weight.detach().to(torch.promote_types(weight.dtype, torch.float32))
