"""The LM head of a Hugging Face causal LM, taken out of its forward pass so that the loss can be fused with it."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lossbench.errors import ConfigError
from lossbench.evaluation.batching import evaluating
from lossbench.losses import LowRank

PROBED_LOGIT = 1e4  # soft caps lie between 15 and 50: they bend values of this size far beyond any rounding


class Unfusable(Exception):  # noqa: N818 - an answer, not an error
    """Why the head of a model cannot be fused with the loss."""


@dataclass(frozen=True)
class LinearHead:
    """A head whose logits are `inputs @ weight.T + bias`, and nothing is done to them afterwards but scaling.

    `module` is what the model calls; `linear` holds weight and bias, `module` itself or what peft wrapped.
    """

    module: nn.Module
    linear: nn.Linear

    @property
    def weight(self) -> Tensor:
        return self.linear.weight

    @property
    def bias(self) -> Tensor | None:
        return self.linear.bias

    @property
    def low_rank(self) -> tuple[LowRank, ...]:
        """LoRA's additions to the weight."""
        lora: Any = self.module
        if not hasattr(lora, "lora_A") or lora.disable_adapters:
            return ()
        return tuple(
            LowRank(lora.lora_A[name].weight, lora.lora_B[name].weight, lora.scaling[name], lora.lora_dropout[name])
            for name in lora.active_adapters
            if name in lora.lora_A
        )

    def inputs(self, outputs: Any) -> Tensor:
        """(B, T, H) inputs of the head, times the factor of the logits if the model has one, from outputs of a forward
        pass with the head taken out."""
        return outputs.logits.to(self.weight.dtype)

    @contextmanager
    def taken_out(self) -> Iterator[None]:
        """Within, the model's head returns what it is given, so that its `outputs.logits` are the head's inputs.

        Whatever the model does before its head, or multiplies its logits by, is thereby kept.
        """
        self.module.forward = _as_given
        try:
            yield
        finally:
            del self.module.forward


def _as_given(inputs: Tensor, *_: Any, **__: Any) -> Tensor:
    return inputs


def choose(model: Any, fused: bool | str) -> LinearHead | None:
    """The head to fuse with the loss, or None for whole logits, as `trainer.fused_head` says (auto, true, false).

    Raises:
        ConfigError: it is true and the head cannot be fused. With auto that is a warning.
    """
    if fused is False:
        return None
    try:
        return find(model)
    except Unfusable as reason:
        if fused is True:
            raise ConfigError(f"trainer.fused_head=true, but {reason}; set it to auto or false.") from None
        warnings.warn(f"the loss is computed on whole logits, which take more memory: {reason}.", stacklevel=2)
        return None


def find(model: Any) -> LinearHead:
    """The linear head of a causal LM (behind peft or not); raises `Unfusable` with the reason where there is none."""
    module = model.get_output_embeddings()
    name = type(model.get_base_model() if hasattr(model, "get_base_model") else model).__name__
    linear = _linear(module)
    if linear is None:
        raise Unfusable(f"the head of {name} is {type(module).__name__} and not a linear layer or LoRA on one")
    head = LinearHead(module, linear)
    with evaluating(model):
        if not _is_its_formula(head):
            raise Unfusable(f"the head of {name} does not compute inputs @ weight.T + bias")
        if not _keeps_logits(model, head):
            raise Unfusable(f"{name} changes its logits behind the head (a soft cap, for example)")
    return head


def _linear(module: Any) -> nn.Linear | None:
    """The linear layer of a head, of LoRA on a head, or of a head that peft trains whole."""
    if hasattr(module, "modules_to_save"):
        (adapter,) = module.active_adapters if hasattr(module, "active_adapters") else [module.active_adapter]
        module = module.modules_to_save[adapter]
    elif hasattr(module, "lora_A"):
        if module.merged or getattr(module, "lora_variant", {}):  # such as DoRA, which is not low-rank
            return None
        module = module.base_layer
    return module if type(module) is nn.Linear else None


def _is_its_formula(head: LinearHead) -> bool:
    """Whether the head's outputs are those of its weights, on random inputs."""
    weight = head.weight
    generator = torch.Generator(device="cpu").manual_seed(0)
    inputs = torch.randn(4, weight.shape[1], generator=generator).to(weight.device, weight.dtype)
    expected = F.linear(inputs, weight, head.bias)
    for low in head.low_rank:
        expected = expected + F.linear(low.inputs(inputs), low.up)
    tolerance = 1e-4 if weight.dtype.itemsize >= 4 else 0.05
    return torch.allclose(head.module(inputs).float(), expected.float(), rtol=tolerance, atol=tolerance)


def _keeps_logits(model: Any, head: LinearHead) -> bool:
    """Whether the model returns what its head gives it, times a constant at most: tried with large made-up logits.

    Their size is the head's input width, as it will be when the head is taken out.
    """
    width, device = head.weight.shape[1], head.weight.device
    given = torch.linspace(-PROBED_LOGIT, PROBED_LOGIT, width, dtype=head.weight.dtype, device=device)
    ids = torch.arange(3, device=device)[None] % head.weight.shape[0]
    head.module.forward = lambda inputs, *_, **__: given.expand(*inputs.shape[:-1], width)
    try:
        returned = model(input_ids=ids, attention_mask=torch.ones_like(ids)).logits
    finally:
        del head.module.forward
    if returned.shape != (*ids.shape, width):
        return False
    factor = returned[0, 0, -1].double() / given[-1].double()
    error = (returned.double() - factor * given.double()).abs().max()
    return bool(factor.isfinite() and factor != 0 and error <= 1e-2 * factor.abs() * PROBED_LOGIT)
