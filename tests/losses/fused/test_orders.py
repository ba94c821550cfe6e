"""The orders in which the fused head goes over tokens and vocabulary all give the same, and hold what they promise."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from lossbench import losses
from lossbench.losses.fused import head, kept, vocabulary
from lossbench.losses.fused.plan import CHUNK_BYTES, Plan, plan
from tests.losses.fused.cases import Problem, assert_same

ONE_OF_EACH_PATH = pytest.mark.parametrize(
    "name",
    ["focal", "goldfish", "squentropy", "mile", "gem", "emo", "unlikelihood", "generalized_dice", "lovasz_softmax"],
)
GATED = pytest.mark.parametrize("name", ["cross_entropy", "focal", "dft", "goldfish", "power_law_decay"])


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Caches of 4 KiB, so that a few hundred tokens of vocabulary are several blocks."""
    for module in (head, kept, vocabulary):
        monkeypatch.setattr(module, "block_bytes", lambda device: 1 << 12)
    monkeypatch.setattr(vocabulary, "TOKENS", 16)
    monkeypatch.setattr(vocabulary, "COLUMNS", 100)


def problem_of(name: str, vocabulary: int = 700, width: int = 30, **keywords: Any) -> Problem:
    loss = losses.get(name)
    return Problem((*loss.needs, *loss.optional), (4, 10), vocabulary, width, **keywords)


@ONE_OF_EACH_PATH
@pytest.mark.parametrize("width", [8, 64], ids=["a part of the tokens is kept", "all tokens are kept"])
@pytest.mark.usefixtures("small_blocks")
def test_tokens_kept_in_several_blocks_change_nothing(name: str, width: int):
    problem = problem_of(name, width=width)
    expected = problem.whole(losses.create(name))
    assert_same(problem.fused(losses.create(name), chunk_tokens=None), expected, 1e-10)


@GATED
@pytest.mark.parametrize("width", [8, 64], ids=["a part of the tokens is kept", "all tokens are kept"])
@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.usefixtures("small_blocks")
def test_blocks_of_the_vocabulary_change_nothing(name: str, width: int, frozen: bool):
    problem = problem_of(name, width=width)

    def gradients(loss: Any, **keywords: Any) -> list[Tensor]:
        hidden, weight, bias = problem.leaves()
        if frozen:
            weight, bias = weight.detach(), bias.detach()
        if keywords:
            value = losses.linear(hidden, weight, problem.labels, loss, bias, **keywords, **problem.context)
        else:
            value = loss(hidden @ weight.T + bias, problem.labels, **problem.context)
        return [value.detach(), *torch.autograd.grad(value, [x for x in (hidden, weight, bias) if x.requires_grad])]

    for memory in (None, 1):
        assert_same(gradients(losses.create(name), memory_bytes=memory), gradients(losses.create(name)), 1e-10)


@GATED
@pytest.mark.parametrize("memory", [None, 1])
@pytest.mark.usefixtures("small_blocks")
def test_bfloat16_is_near_float32_in_every_order(name: str, memory: int | None):
    problem = problem_of(name, width=32, dtype=torch.bfloat16)
    problem.hidden = problem.hidden / 8
    found = problem.fused(losses.create(name), chunk_tokens=None, memory_bytes=memory)
    problem.hidden, problem.weight, problem.bias = (x.float() for x in (problem.hidden, problem.weight, problem.bias))
    for a, b in zip(found, problem.whole(losses.create(name)), strict=True):
        assert (a.float() - b).norm() <= 1e-2 * b.norm()


@pytest.mark.usefixtures("small_blocks")
def test_certain_and_hopeless_tokens_keep_their_digits():
    """p_t of nearly 1 and of nearly 0: 1 - p_t is a sum and log p_t a difference of logits, never the reverse."""
    problem = problem_of("focal", vocabulary=300, dtype=torch.float32)
    problem.hidden = problem.hidden * torch.tensor([-20.0, 1.0, 10.0, 40.0])[:, None, None]
    exact = problem_of("focal", vocabulary=300)
    exact.hidden, exact.weight, exact.bias = (x.double() for x in (problem.hidden, problem.weight, problem.bias))
    expected = exact.whole(losses.create("focal"))
    for memory in (None, 1):
        found = problem.fused(losses.create("focal"), chunk_tokens=None, memory_bytes=memory)
        assert_same(found, expected, 1e-5)
    hidden, weight, bias = (x.detach() for x in problem.leaves())
    value = losses.linear(hidden.requires_grad_(), weight, problem.labels, losses.create("focal"), bias)
    assert_same([value.detach(), *torch.autograd.grad(value, hidden)], expected[:2], 1e-5)


class _Large(TorchDispatchMode):
    """Storages of at least so many entries that operators made, by address."""

    def __init__(self, entries: int) -> None:
        super().__init__()
        self.entries = entries
        self.found: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for x in out if isinstance(out, (tuple, list)) else [out]:
            if isinstance(x, Tensor) and x.untyped_storage().nbytes() // x.element_size() >= self.entries:
                self.found.add(x.untyped_storage().data_ptr())
        return out


@ONE_OF_EACH_PATH
@pytest.mark.usefixtures("small_blocks")
def test_logits_of_all_tokens_exist_only_where_the_gradient_will_be(name: str):
    problem = problem_of(name, vocabulary=4001, width=48, dtype=torch.float32, ignored=0.0)
    loss = losses.create(name)
    if "embedding" in problem.context:
        loss.bind(embedding=problem.context.pop("embedding"))
    hidden, weight, bias = problem.leaves()
    with _Large(40 * 4001 * 2 // 3) as large:
        losses.linear(hidden, weight, problem.labels, loss, bias, **problem.context).backward()
    assert weight.grad is not None
    bound = {held.data_ptr() for held in loss.buffers()}
    assert large.found <= {weight.data_ptr(), weight.grad.data_ptr(), *bound}


@given(
    n=st.integers(0, 5000),
    v=st.sampled_from([2, 300, 32_000, 151_936]),
    width=st.sampled_from([1, 64, 896, 4096]),
    dtype=st.sampled_from([torch.float64, torch.float32, torch.bfloat16]),
    wanted=st.sampled_from([{"trained": True}, {"trained": False}, {"trained": False, "only_hidden": True}]),
    gate_only=st.booleans(),
    memory=st.sampled_from([None, 1, 1 << 24, 1 << 40]),
)
@settings(max_examples=200)
def test_a_plan_stays_within_its_memory(
    n: int, v: int, width: int, dtype: torch.dtype, wanted: dict[str, bool], gate_only: bool, memory: int | None
):
    found = plan(n, v, width, dtype, **wanted, gate_only=gate_only, memory_bytes=memory)
    assert found == plan(n, v, width, dtype, **wanted, gate_only=gate_only, memory_bytes=memory)
    trained = wanted["trained"]
    assert 0 <= found.kept <= n and (trained or not found.kept)
    row = v * dtype.itemsize
    if found.kept > width:  # instead of a chunk, or of a sum in float32
        summed = 4 * v * width if dtype == torch.bfloat16 else 0
        assert (n - width) * row <= (max(CHUNK_BYTES, summed) if memory is None else memory)
    rest = n - found.kept
    if found.by_vocabulary:
        assert gate_only and ("only_hidden" in wanted or memory is not None)
        return
    assert found.chunk >= 1 and (found.chunk <= rest or rest == 0)
    if memory is None:
        assert found.chunk * row <= max(CHUNK_BYTES, row * {8: 64, 4: 128, 2: 512}[dtype.itemsize])
    elif not (dtype == torch.bfloat16 and trained):
        assert found.chunk * row <= max(memory, row)


def test_asked_for_chunks_are_what_one_gets():
    assert plan(10, 50, 8, torch.float32, trained=True, gate_only=True, chunk_tokens=4) == Plan(0, 4)
    assert plan(9, 50, 8, torch.float32, trained=True, gate_only=True, chunk_tokens=4) == Plan(0, 3)
