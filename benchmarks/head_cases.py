"""What benchmarks/head.py measures: a head with hidden states and labels, our losses on it, and other people's."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import sys
import types
from collections.abc import Callable
from typing import Any

BASE = "cross_entropy on whole logits"
PRODUCTS = "matrix products alone"
SMALL = "cross_entropy, least memory"
PLAIN = "focal as a user's RowLoss"
TORCH = "torch linear_cross_entropy"
CUT = "cut-cross-entropy, compiled form"
EMO_AUTHORS = "EMOLoss (the authors' package)"
LOVASZ_AUTHORS = "Lovasz by Berman (segmentation-models-pytorch)"
KORNIA = "kornia lovasz_softmax_loss"


class Setting:
    """A head, hidden states and labels of one shape NxHxV; labels follow Zipf's law over a shuffled vocabulary."""

    def __init__(self, shape: str, dtype: str, *, frozen: bool, ignored: float = 0.0) -> None:
        import torch

        torch.manual_seed(0)
        self.n, self.h, self.v = (int(size) for size in shape.split("x"))
        self.dtype = getattr(torch, dtype)
        frequency = 1 / torch.arange(1, self.v + 1, dtype=torch.float64)
        self.labels = torch.randperm(self.v)[torch.multinomial(frequency, self.n, replacement=True)]
        weight = torch.randn(self.v, self.h) / self.h**0.5
        push = 14 * torch.rand(self.n, 1)  # logit of the label: probabilities spread over (0, 1)
        hidden = torch.randn(self.n, self.h) + push * weight[self.labels]
        self.weight = weight.to(self.dtype).requires_grad_(not frozen)
        self.hidden = hidden.to(self.dtype).requires_grad_()
        if ignored:
            self.labels[torch.rand(self.n) < ignored] = -100

    def method(self, name: str) -> Callable[[], None] | None:
        """One forward and backward of a method; None where its package is not installed."""
        if name in OTHERS:
            try:
                return OTHERS[name](self)
            except ImportError:
                return None
        return self._ours(name)

    def _ours(self, name: str) -> Callable[[], None]:
        from lossbench import losses

        loss = _plain_focal() if name == PLAIN else losses.create(name.removesuffix(", least memory"))
        memory = 1 if name.endswith(", least memory") else None
        if "embedding" in loss.needs:
            loss.bind(embedding=self.weight.detach().clone())
        return lambda: losses.linear(self.hidden, self.weight, self.labels, loss, memory_bytes=memory).backward()

    @property
    def returned_bytes(self) -> int:
        """Bytes of the gradients that every method returns."""
        return sum(x.numel() * x.element_size() for x in (self.hidden, self.weight) if x.requires_grad)


def _plain_focal() -> Any:
    """What somebody writes who knows nothing of the fused head."""
    import torch

    from lossbench import losses

    class PlainFocal(losses.RowLoss):
        def value(self, rows: torch.Tensor, batch: losses.Batch) -> torch.Tensor:
            cross_entropy = torch.nn.functional.cross_entropy(rows, batch.labels, reduction="none")
            return (1 - torch.exp(-cross_entropy)) ** 2 * cross_entropy

    return PlainFocal()


def _whole(s: Setting) -> Callable[[], None]:
    import torch.nn.functional as F

    return lambda: F.cross_entropy(s.hidden @ s.weight.T, s.labels).backward()


def _products(s: Setting) -> Callable[[], None]:
    def run() -> None:
        hidden, weight = s.hidden.detach(), s.weight.detach()
        logits = hidden @ weight.T
        logits @ weight
        if s.weight.requires_grad:
            logits.T @ hidden

    return run


def _torch(s: Setting) -> Callable[[], None]:
    import torch.nn.functional as F
    from torch.nn.modules.linear_cross_entropy_options import LinearCrossEntropyOptions as Options

    fused: Any = functools.partial(F.linear_cross_entropy, options=Options())
    return lambda: fused(s.hidden, s.weight, s.labels).backward()


def _cut(s: Setting) -> Callable[[], None]:
    fused = _alone("cut_cross_entropy.torch_compile").torch_compile_linear_cross_entropy
    fused(s.hidden, s.weight, s.labels).backward()  # compiles
    s.hidden.grad = s.weight.grad = None
    return lambda: fused(s.hidden, s.weight, s.labels).backward()


def _emo(s: Setting) -> Callable[[], None]:
    import torch.nn.functional as F
    from emo import EMOLoss

    cost = s.weight.detach().clone()
    padded = F.pad(s.labels, (1, 0), value=-100)[None]  # it shifts the labels itself
    return lambda: EMOLoss(F.pad(s.hidden @ s.weight.T, (0, 0, 0, 1))[None], padded, cost).backward()


def _berman(s: Setting) -> Callable[[], None]:
    lovasz = _alone("segmentation_models_pytorch.losses.lovasz")._lovasz_softmax_flat
    return lambda: lovasz((s.hidden @ s.weight.T).softmax(1), s.labels).backward()


def _kornia(s: Setting) -> Callable[[], None]:
    from kornia.losses import lovasz_softmax_loss

    return lambda: lovasz_softmax_loss((s.hidden @ s.weight.T).T[None, :, :, None], s.labels[None, :, None]).backward()


OTHERS: dict[str, Callable[[Setting], Callable[[], None]]] = {
    BASE: _whole,
    PRODUCTS: _products,
    TORCH: _torch,
    CUT: _cut,
    EMO_AUTHORS: _emo,
    LOVASZ_AUTHORS: _berman,
    KORNIA: _kornia,
}


def _alone(name: str) -> Any:
    """A module without its packages' __init__, which want Triton or torchvision; neither is used by what we measure."""
    if name in sys.modules:
        return sys.modules[name]
    package = name.rpartition(".")[0].split(".")
    spec = importlib.util.find_spec(package[0])
    if spec is None or not spec.submodule_search_locations:
        raise ImportError(package[0])
    places = list(spec.submodule_search_locations)
    for k, part in enumerate(package):
        empty = types.ModuleType(".".join(package[: k + 1]))
        places = [f"{place}/{part}" for place in places] if k else places
        empty.__path__ = places  # type: ignore[attr-defined]
        sys.modules[empty.__name__] = empty
    return importlib.import_module(name)
