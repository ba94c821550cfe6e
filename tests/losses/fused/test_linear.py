"""The fused head gives the value and the gradients of the loss on whole logits, for every loss."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

from lossbench import losses
from lossbench.losses.fused import path
from tests.losses.fused.cases import Problem, all_losses, assert_same, differentiated, named

EVERY_LOSS = pytest.mark.parametrize(("name", "params"), all_losses(), ids=[named(pair) for pair in all_losses()])
FUSED = pytest.mark.parametrize("name", [n for n in losses.available() if path(losses.create(n)) != "whole"])
ONE_OF_EACH_PATH = pytest.mark.parametrize(
    "name",
    ["focal", "goldfish", "squentropy", "mile", "gem", "emo", "unlikelihood", "generalized_dice", "lovasz_softmax"],
)


def twins(name: str, **params: Any) -> tuple[losses.Loss, losses.Loss]:
    """Two of the same loss, so that one's state does not meet the other's."""
    return losses.create(name, **params), losses.create(name, **params)


def problem_of(name: str, *args: Any, **keywords: Any) -> Problem:
    loss = losses.get(name)
    return Problem((*loss.needs, *loss.optional), *args, **keywords)


@EVERY_LOSS
def test_fused_equals_whole_in_float64(name: str, params: dict[str, Any]):
    problem = problem_of(name)
    for reduction in ("mean", "sum", "none"):
        if reduction == "none" and losses.get(name).kind == "BatchLoss":
            continue
        whole, fused = twins(name, **params)
        expected = problem.whole(whole, reduction=reduction)
        assert_same(problem.fused(fused, reduction=reduction), expected, 1e-10)
        for memory in (None, 1):  # kept in the memory of the weight's gradient, and the least memory that is possible
            whole, fused = twins(name, **params)
            expected = problem.whole(whole, reduction=reduction)
            again = problem.fused(fused, reduction=reduction, chunk_tokens=None, memory_bytes=memory)
            assert_same(again, expected, 1e-10)


@pytest.mark.parametrize("name", losses.available())
def test_fused_equals_whole_in_float32(name: str):
    problem = problem_of(name, vocabulary=61, dtype=torch.float32)
    whole, fused = twins(name)
    assert_same(problem.fused(fused, chunk_tokens=None), problem.whole(whole), 1e-5)


@pytest.mark.parametrize("name", losses.available())
def test_bfloat16_is_near_float32(name: str):
    problem = problem_of(name, shape=(4, 16), vocabulary=61, width=32, dtype=torch.bfloat16)
    problem.hidden, problem.weight = problem.hidden / 8, problem.weight
    whole, fused = twins(name)
    found = problem.fused(fused, chunk_tokens=16)
    assert found[1].dtype == found[2].dtype == torch.bfloat16
    problem.hidden, problem.weight, problem.bias = (x.float() for x in (problem.hidden, problem.weight, problem.bias))
    expected = problem.whole(whole)
    for a, b in zip(found, expected, strict=True):
        assert (a.float() - b).norm() <= 1e-2 * b.norm() + 1e-12


@ONE_OF_EACH_PATH
@settings(max_examples=8)
@given(data=st.data())
def test_any_shape_and_chunk(name: str, data: st.DataObject):
    shape = data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=3).map(tuple))
    problem = problem_of(
        name,
        shape,
        data.draw(st.integers(2, 40)),
        data.draw(st.integers(1, 7)),
        ignored=data.draw(st.sampled_from([0.0, 0.3, 0.9])),
        seed=data.draw(st.integers(0, 99)),
    )
    whole, fused = twins(name)
    normalizer = data.draw(st.sampled_from([None, 3.0, torch.tensor(7.0)]))
    chunk = data.draw(st.sampled_from([1, 2, 3, 1000, None]))
    expected = problem.whole(whole, normalizer=normalizer)
    assert_same(problem.fused(fused, normalizer=normalizer, chunk_tokens=chunk), expected, 1e-8)


@FUSED
def test_ignored_tokens_never_enter_a_product(name: str):
    problem = problem_of(name)
    expected = problem.fused(losses.create(name))
    problem.hidden[problem.labels == -100] = torch.nan
    found = problem.fused(losses.create(name))
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
    assert bool((found[1][problem.labels == -100] == 0).all())


@pytest.mark.parametrize("name", losses.available())
def test_no_valid_token_gives_zero_with_a_graph(name: str):
    problem = problem_of(name)
    problem.labels = torch.full_like(problem.labels, -100)
    for value_or_gradient in problem.fused(losses.create(name)):
        assert bool((value_or_gradient == 0).all())


@ONE_OF_EACH_PATH
def test_an_empty_batch_gives_zero(name: str):
    loss = losses.create(name)
    context = {n: v for n, v in problem_of(name).context.items() if n in ("embedding",)}
    hidden, weight = torch.zeros(0, 4, 6, requires_grad=True), torch.ones(23, 6, requires_grad=True)
    value = losses.linear(hidden, weight, torch.zeros(0, 4, dtype=torch.int64), loss, **context)
    value.backward()
    assert value.item() == 0
    assert hidden.grad is not None and weight.grad is not None and not weight.grad.any()


@ONE_OF_EACH_PATH
@pytest.mark.parametrize("wanted", [(True, False, False), (False, True, False), (False, False, True)])
def test_only_the_gradients_that_are_asked_for(name: str, wanted: tuple[bool, bool, bool]):
    problem = problem_of(name)
    leaves = [x.requires_grad_(w) for x, w in zip(problem.leaves(), wanted, strict=True)]
    hidden, weight, bias = leaves
    losses.linear(hidden, weight, problem.labels, losses.create(name), bias, **problem.context).backward()
    expected = problem.whole(losses.create(name))[1:]
    for leaf, w, gradient in zip(leaves, wanted, expected, strict=True):
        assert (leaf.grad is not None) == w
        if w:
            torch.testing.assert_close(leaf.grad, gradient)


class _Largest(TorchDispatchMode):
    """The number of entries of the largest tensor that an operator returns, views not counted."""

    entries = 0
    largest_product = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for x in out if isinstance(out, (tuple, list)) else [out]:
            if isinstance(x, Tensor):
                self.entries = max(self.entries, x.untyped_storage().nbytes() // x.element_size())
        return out


@FUSED
def test_no_tensor_of_tokens_times_vocabulary(name: str):
    if name == "asft":
        pytest.skip("it is given the logits of the reference model")
    tokens, vocabulary = 96, 4001
    problem = problem_of(name, (4, tokens // 4), vocabulary, 5, ignored=0.0, dtype=torch.float32)
    hidden, weight, bias = problem.leaves()
    loss = losses.create(name)
    fixed = {
        k: problem.context.pop(k)
        for k in list(problem.context)
        if k in ("embedding", "class_counts", "token_frequencies", "token_values")
    }
    if "token_values" in fixed:
        fixed["token_values"][20:] = torch.nan
    loss.bind(**fixed)
    with _Largest() as largest:
        losses.linear(hidden, weight, problem.labels, loss, bias, chunk_tokens=16, **problem.context).backward()
    assert largest.entries <= tokens * vocabulary // 3


def test_tied_embeddings_get_both_gradients():
    def value(fused: bool) -> list[Tensor]:
        table = torch.linspace(-1, 1, 11 * 4, dtype=torch.float64).sin().view(11, 4).requires_grad_()
        ids = torch.arange(10) % 11
        hidden, labels = table[ids].tanh(), (ids * 3) % 11
        loss = losses.create("focal")
        out = losses.linear(hidden, table, labels, loss) if fused else loss(hidden @ table.T, labels)
        return [out.detach(), *torch.autograd.grad(out, table)]

    assert_same(value(True), value(False), 1e-12)


@ONE_OF_EACH_PATH
def test_the_same_call_gives_the_same_bits(name: str):
    problem = problem_of(name, dtype=torch.float32)
    first, second = (problem.fused(losses.create(name)) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


@ONE_OF_EACH_PATH
def test_without_gradients_the_value_is_the_same(name: str):
    problem = problem_of(name)
    expected = problem.whole(losses.create(name))[0]
    with torch.no_grad():
        value = losses.linear(
            *problem.leaves()[:2], problem.labels, losses.create(name), problem.bias, **problem.context
        )
    assert not value.requires_grad
    torch.testing.assert_close(value, expected)


@ONE_OF_EACH_PATH
@pytest.mark.parametrize("reentrant", [False, True])
def test_gradient_checkpointing(name: str, reentrant: bool):
    problem, loss = problem_of(name), losses.create(name)

    def value(hidden: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return checkpoint(
            lambda h: losses.linear(h.tanh(), weight, problem.labels, loss, bias, **problem.context),
            hidden,
            use_reentrant=reentrant,
        )

    def backward(function: Any) -> list[Tensor]:
        leaves = problem.leaves()
        out = function(*leaves)
        out.backward()
        return [out.detach(), *(leaf.grad for leaf in leaves)]

    whole = losses.create(name)
    expected = backward(lambda h, w, b: whole(h.tanh() @ w.T + b, problem.labels, **problem.context))
    assert_same(backward(value), expected, 1e-10)


@ONE_OF_EACH_PATH
def test_autocast_multiplies_in_bfloat16_and_returns_float32(name: str):
    problem = problem_of(name, shape=(4, 16), width=32, dtype=torch.float32)
    problem.hidden = problem.hidden / 8
    expected = problem.whole(losses.create(name))
    with torch.autocast("cpu", torch.bfloat16):
        found = problem.fused(losses.create(name))
    assert {x.dtype for x in found} == {torch.float32}
    assert not torch.equal(found[1], expected[1])
    for a, b in zip(found, expected, strict=True):
        assert (a - b).norm() <= 2e-2 * b.norm()


def test_accumulated_micro_batches_equal_one_batch():
    problem, loss = Problem(shape=(6, 8)), losses.create("focal")
    valid = float((problem.labels != -100).sum())
    leaves = problem.leaves()
    for rows in (slice(0, 2), slice(2, 5), slice(5, 6)):
        value = losses.linear(leaves[0][rows], leaves[1], problem.labels[rows], loss, leaves[2], normalizer=valid)
        value.backward()
    assert_same([x.grad for x in leaves], problem.whole(loss)[1:], 1e-12)  # type: ignore[misc]


def test_a_second_derivative_is_refused_with_a_sentence():
    problem = Problem()
    hidden, weight, _ = problem.leaves()
    value = losses.linear(hidden, weight, problem.labels, losses.create("focal"))
    with pytest.raises(RuntimeError, match="no second derivative"):
        torch.autograd.grad(value, hidden, create_graph=True)


def test_a_second_backward_is_refused_with_a_sentence():
    problem = Problem()
    hidden, weight, _ = problem.leaves()
    value = losses.linear(hidden, weight, problem.labels, losses.create("focal"))
    value.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="used up"):
        value.backward()


def test_the_upstream_gradient_scales_the_result():
    problem, loss = Problem(), losses.create("focal")
    scaled = differentiated(lambda h, w, b: -3.5 * losses.linear(h, w, problem.labels, loss, b), problem.leaves())
    assert_same(scaled, [-3.5 * x for x in problem.whole(loss)], 1e-12)


def test_the_state_of_a_loss_moves_once_a_call():
    problem = Problem()
    whole, fused = twins("error_norm_truncation", start_iteration=10)
    for _ in range(3):
        problem.whole(whole)
        problem.fused(fused, chunk_tokens=2)
    assert int(fused.iteration) == int(whole.iteration) == 3


@pytest.mark.parametrize("dropout", [None, nn.Dropout(0.5)])
@ONE_OF_EACH_PATH
def test_a_low_rank_addition_is_never_multiplied_out(name: str, dropout: nn.Module | None):
    problem = problem_of(name)
    generator = torch.Generator().manual_seed(3)
    down, up = (torch.randn(*s, generator=generator, dtype=torch.float64) for s in ((2, 6), (23, 2)))
    whole, fused = twins(name)
    drop = dropout or (lambda x: x)
    problem.labels = problem.labels.where(problem.labels != -100, 0)  # dropout is drawn for the same tokens

    def expected(h: Tensor, w: Tensor, b: Tensor, a: Tensor, u: Tensor) -> Tensor:
        logits = h @ w.T + b + 0.5 * (drop(h.reshape(-1, 6)) @ a.T @ u.T).view(*h.shape[:-1], -1)
        return whole(logits, problem.labels, **problem.context)

    def found(h: Tensor, w: Tensor, b: Tensor, a: Tensor, u: Tensor) -> Tensor:
        low = losses.LowRank(a, u, 0.5, dropout)
        return losses.linear(h, w, problem.labels, fused, b, low_rank=low, chunk_tokens=7, **problem.context)

    if name == "emo" and dropout is not None:
        return  # its tokens are visited in another order, and so dropout draws another mask

    def leaves() -> list[Tensor]:
        return [*problem.leaves(), down.clone().requires_grad_(), up.clone().requires_grad_()]

    assert_same(differentiated(found, leaves()), differentiated(expected, leaves()), 1e-10)


def test_a_module_of_ones_own_is_computed_on_whole_logits():
    class Mine(nn.Module):
        def forward(self, logits: Tensor, labels: Tensor, *, reduction: str = "mean", normalizer: Any = None) -> Tensor:
            return nn.functional.cross_entropy(logits.flatten(0, -2), labels.flatten(), reduction=reduction)

    problem = Problem()
    assert path(Mine()) == "whole"
    assert_same(problem.fused(Mine()), problem.whole(Mine()), 1e-12)


def test_a_loss_of_ones_own_is_fused_by_its_family():
    class Squared(losses.TargetLoss):
        def value(self, log_p: Tensor, batch: losses.Batch) -> Tensor:
            return log_p.square()

    class Margin(losses.RowLoss):
        def value(self, rows: Tensor, batch: losses.Batch) -> Tensor:
            return (rows - rows.gather(1, batch.labels[:, None]) + 1).clamp_min(0).sum(1)

    class OfClasses(losses.BatchLoss):
        def value(self, columns: losses.Columns, batch: losses.Batch) -> Tensor:
            weight = (columns.classes + 1).to(columns.log_p.dtype)  # token ids, not their places among the columns
            return (weight * columns.log_p.exp().sum(0)).sum() / batch.labels.sum()

    class OfAllColumns(losses.BatchLoss):
        def per_token(self, rows: Tensor, batch: losses.Batch) -> Tensor:
            return rows.softmax(1).square().sum()

    problem = Problem()
    for loss, expected in (
        (Squared(), "target"),
        (Margin(), "rows"),
        (OfClasses(), "columns"),
        (OfAllColumns(), "whole"),
    ):
        assert path(loss) == expected
        assert_same(problem.fused(loss), problem.whole(loss), 1e-10)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"hidden": torch.zeros(3, 8, 5)}, "weight must be"),
        ({"hidden": torch.zeros(3, 8, 6, dtype=torch.int64)}, "hidden must be"),
        ({"labels": torch.zeros(3, 7, dtype=torch.int64)}, "labels"),
        ({"bias": torch.zeros(22)}, "bias must have the shape"),
        ({"weight": torch.zeros(23, 6, dtype=torch.bfloat16)}, "cast one of them"),
        ({"chunk_tokens": 0}, "chunk_tokens"),
        ({"normalizer": -1.0}, "normalizer"),
        ({"reduction": "median"}, "reduction"),
    ],
)
def test_what_does_not_fit_is_said_in_a_sentence(change: dict[str, Any], sentence: str):
    problem = Problem(dtype=torch.float32)
    given: dict[str, Any] = {
        "hidden": problem.hidden,
        "weight": problem.weight,
        "labels": problem.labels,
        "loss": losses.create("focal"),
        "bias": problem.bias,
        **change,
    }
    with pytest.raises(losses.BadInput, match=sentence):
        losses.linear(**given)


def test_a_loss_can_be_copied_between_calls():
    problem, loss = problem_of("emo"), losses.create("emo")
    problem.fused(loss)
    assert_same(problem.fused(copy.deepcopy(loss)), problem.whole(loss), 1e-10)
