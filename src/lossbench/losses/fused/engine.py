"""One or two passes over the tokens for all terms together, and the autograd function around them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import Any

import torch
from torch import Tensor

from .head import Gradients, Head, Wanted
from .kept import Kept
from .plan import Plan
from .rows import Block, RowGradient, softmax
from .terms import Term
from .vocabulary import Recomputed, online

Blocks = Iterable[tuple[int, int, Tensor]]  # first row, last + 1, and the rows, which may be written to


@dataclass
class Job:
    """What one call of the fused head has to do.

    Args:
        terms: the losses on the rows of the head.
        labels: (n,) label of each row.
        dtype: of the matrix products.
        plan: how many tokens' logits exist at a time, by whether the weight's gradient is made in the same pass, and
            whether no other than the hidden states' is.
        outcome: makes the result of the call from the values of the terms; no gradient passes.
        sparing: take smaller buffers than are fastest.
        differentiable: False where no gradient will be asked for.
        scalar: the upstream gradients of the terms are known, so that gradients are made in the forward pass.
    """

    terms: Sequence[Term]
    labels: Tensor
    dtype: torch.dtype
    plan: Callable[[bool, bool], Plan]
    outcome: Callable[[], Tensor]
    sparing: bool
    differentiable: bool
    scalar: bool

    def head(self, tensors: Sequence[Tensor | None]) -> Head:
        """From (inputs, weight) in turn and the bias, in the dtype of the products."""
        *pairs, bias = (None if x is None else x.detach().to(self.dtype) for x in tensors)
        matrices = max(term.matrices for term in self.terms)
        return Head(pairs[0::2], pairs[1::2], bias, matrices, self.sparing)  # type: ignore[arg-type]

    def observe(self, head: Head, chunk: int, kept: Kept | None, *, differentiable: bool) -> None:
        """First pass, for the terms that need it, or for values alone."""
        terms = [term for term in self.terms if term.deferred or not (differentiable and self.scalar)]
        if not terms:
            return
        needs = frozenset().union(*(term.needs for term in terms))
        for start, blocks in self._pieces(head, chunk, kept, write=False):
            for a, b, rows in blocks:
                labels = self.labels[start + a : start + b]
                block = Block.of(start + a, labels, rows, needs, head.buffers, keep=True)
                for term in terms:
                    term.observe(block)
        self._evaluate(terms, differentiable)

    def _evaluate(self, terms: Iterable[Term], differentiable: bool) -> None:
        for term in terms:
            term.evaluate(differentiable=differentiable and (not self.scalar or term.upstream is not None))

    def gradients(self, head: Head, wanted: Wanted, chunk: int, kept: Kept | None) -> list[Tensor | None]:
        """The pass that makes the gradients (and the values of terms that were not observed)."""
        gradients = Gradients(head, wanted)
        transform = self._gated if all(term.gate_only for term in self.terms) else self._assembled
        if kept is not None:  # first of all: its logits lie where the weight's gradient will be
            kept.fill()
            scale = transform(head, 0, kept.n, kept.blocks(write=True))
            gradients.add_columns(kept.columns(kept.n), kept.n, scale, kept.weight)
        for start, logits in self._chunks(head, chunk, 0 if kept is None else kept.n):
            stop = start + logits.shape[0]
            gradients.add(logits, start, stop, transform(head, start, stop, head.blocks(logits, write=True)))
        return gradients.finished()

    def by_vocabulary(self, head: Head, wanted: Wanted, kept: Kept | None) -> list[Tensor | None]:
        """Values and gradients where every gradient is gate * (p - onehot), in blocks of the vocabulary."""
        start = 0 if kept is None else kept.n
        log_p = torch.empty(head.n, dtype=head.float_dtype, device=self.labels.device)
        if kept is not None:
            kept.fill()
            self._minus_onehot(self.labels[:start], kept.blocks(write=True), log_p)
        recomputed = Recomputed(head, self.labels, start)
        log_p[start:] = recomputed.log_p
        gate = self._gates_of_all(log_p)
        gradients = Gradients(head, wanted)
        weight = torch.empty_like(head.weights[0]) if kept is None and wanted.weights[0] else None
        gradients.add_columns(recomputed.columns(kept), head.n, gate, weight if kept is None else kept.weight)
        return gradients.finished()

    def by_vocabulary_once(self, head: Head, wanted: Wanted) -> list[Tensor | None]:
        """The same where the head is frozen."""
        log_p, means = online(head, self.labels)
        gate = self._gates_of_all(log_p)[:, None]
        return _of_inputs(mean.mul_(gate) if w else None for mean, w in zip(means, wanted.inputs, strict=True))

    def _gates_of_all(self, log_p: Tensor) -> Tensor:
        """(n,) gate of every row, from log p of its label, where no term has observed anything yet."""
        everything = Block(0, len(log_p), self.labels, log_p[:, None], log_p=log_p)
        deferred = [term for term in self.terms if term.deferred]
        for term in deferred:
            term.observe(everything)
        self._evaluate(deferred, True)
        self.backpropagate(deferred)
        return self._gates(everything)

    def _gates(self, block: Block) -> Tensor:
        out = RowGradient.zero(block.log_p)
        for term in self.terms:
            term.gradient(block, out)
        return out.gate

    def values_and_gradients(self, head: Head, wanted: Wanted, plan: Plan) -> list[Tensor | None]:
        """Gradients of inputs and weights in turn and of the bias, where the upstream gradients are known before."""
        if wanted.only_hidden and plan.by_vocabulary:
            return self.by_vocabulary_once(head, wanted)
        if wanted.only_hidden and self.in_one_pass:
            return self.of_frozen_head(head, wanted, plan.chunk)
        kept = Kept(head, plan.kept) if plan.kept else None
        if plan.by_vocabulary:
            return self.by_vocabulary(head, wanted, kept)
        self.observe(head, plan.chunk, kept, differentiable=True)
        self.backpropagate(term for term in self.terms if term.deferred)
        return self.gradients(head, wanted, plan.chunk, kept)

    def backpropagate(self, terms: Iterable[Term]) -> None:
        """Derivatives of terms that were observed, where those of their values are known before."""
        for term in terms:
            if term.upstream is not None:
                term.backpropagate(term.place.as_tokens(term.upstream) if term.upstream.dim() else term.upstream)

    @property
    def in_one_pass(self) -> bool:
        """Whether one pass will do for a frozen head although some term needs two: every gradient is linear in p.

        Then dH = scale (p @ W) + a few rows of W, and p @ W can be made before the scale is known.
        """
        linear = all(term.linear_in_p for term in self.terms if term.upstream is not None or term.deferred)
        return linear and any(term.deferred for term in self.terms)

    def of_frozen_head(self, head: Head, wanted: Wanted, chunk: int) -> list[Tensor | None]:
        """Values of all terms and the gradients of the inputs in a single pass."""
        needs = frozenset().union(*(term.needs for term in self.terms))
        means = [torch.empty_like(x) for x in head.inputs]  # (p - onehot) @ W
        for start, logits in self._chunks(head, chunk, 0):
            for a, b, rows in head.blocks(logits, write=True):
                block = Block.of(start + a, self.labels[start + a : start + b], rows, needs, head.buffers)
                for term in self.terms:
                    term.observe(block)
                rows.scatter_(1, block.labels[:, None], -block.others[:, None])
            for mean, weight in zip(means, head.weights, strict=True):
                torch.mm(logits, weight, out=mean[start : start + logits.shape[0]])
        for term in self.terms:
            term.evaluate(differentiable=term.upstream is not None)
        self.backpropagate(self.terms)
        everything = Block(0, head.n, self.labels, means[0])
        out = RowGradient.zero(self.labels.to(head.float_dtype))
        for term in self.terms:
            term.gradient(everything, out)
        triples = zip(means, head.weights, wanted.inputs, strict=True)
        return _of_inputs(out.times(mean, weight, self.labels) if w else None for mean, weight, w in triples)

    def _gated(self, head: Head, start: int, stop: int, blocks: Blocks) -> Tensor:
        """Turn the logits of tokens into p - onehot -> the gate of each row, by which it must be multiplied."""
        log_p = torch.empty(stop - start, dtype=head.float_dtype, device=self.labels.device)
        labels = self.labels[start:stop]
        self._minus_onehot(labels, blocks, log_p)
        return self._gates(Block(start, stop, labels, log_p[:, None], log_p=log_p))

    def _minus_onehot(self, labels: Tensor, blocks: Blocks, log_p: Tensor) -> None:
        """Turn logits into p - onehot, and keep log p of the labels (n,)."""
        for a, b, rows in blocks:
            cells = labels[a:b, None]
            z_t = rows.gather(1, cells).squeeze(1)
            log_p[a:b], _, others = softmax(rows, labels[a:b], z_t, rows.amax(1), out=rows)
            rows.scatter_(1, cells, -others[:, None])

    def _assembled(self, head: Head, start: int, stop: int, blocks: Blocks) -> None:
        """Turn the logits of tokens into the gradient with respect to them."""
        needs = frozenset().union(*(term.needs for term in self.terms))
        for a, b, rows in blocks:
            block = Block.of(start + a, self.labels[start + a : start + b], rows, needs, head.buffers)
            out = RowGradient.zero(rows[:, 0])
            for term in self.terms:
                term.gradient(block, out)
            out.write(block)

    def _pieces(self, head: Head, chunk: int, kept: Kept | None, *, write: bool) -> Iterator[tuple[int, Blocks]]:
        """First token and blocks of the tokens that are kept, then of every chunk."""
        if kept is not None:
            kept.fill()
            yield 0, kept.blocks(write=write)
        for start, logits in self._chunks(head, chunk, 0 if kept is None else kept.n):
            yield start, head.blocks(logits, write=write)

    def _chunks(self, head: Head, chunk: int, first: int) -> Iterator[tuple[int, Tensor]]:
        """Start and logits of every chunk; a second pass goes backwards, from the logits that the first one left."""
        starts = list(range(first, head.n, chunk))
        for start in reversed(starts) if head.held is not None else starts:
            yield start, head.logits(start, min(start + chunk, head.n))


@contextmanager
def _exactly() -> Iterator[None]:
    """No graph and no automatic cast: dtypes here are chosen, not guessed."""
    with torch.no_grad(), torch.autocast("cpu", enabled=False), torch.autocast("cuda", enabled=False):
        yield


class FusedHead(torch.autograd.Function):
    """`apply(job, inputs, weight, ..., bias)`: the outcome of a job, and its gradients for all tensors."""

    @staticmethod
    def forward(ctx: Any, job: Job, *tensors: Tensor | None) -> Tensor:
        ctx.job = job
        ctx.set_materialize_grads(False)
        wanted = Wanted(ctx.needs_input_grad[1:-1:2], ctx.needs_input_grad[2:-1:2], ctx.needs_input_grad[-1])
        differentiable = job.differentiable and wanted.any
        with _exactly():
            head = job.head(tensors)
            made_now = differentiable and job.scalar
            plan = job.plan(made_now and wanted.weights[0], made_now and wanted.only_hidden)
            if made_now:
                ctx.made = _cast(job.values_and_gradients(head, wanted, plan), tensors)
            else:
                job.observe(head, plan.chunk, None, differentiable=differentiable)
                ctx.wanted = wanted
                ctx.save_for_backward(*(tensors if differentiable else ()))
            return job.outcome()

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor | None) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            raise RuntimeError(
                "the fused head has no second derivative: it was differentiated with create_graph=True. Use the loss "
                "on whole logits, loss(hidden @ weight.T, labels), where a gradient of a gradient is needed."
            )
        (given,) = upstream
        if given is None:
            return (None,) * (1 + len(ctx.needs_input_grad[1:]))
        if ctx.job is None:
            raise RuntimeError(
                "the gradient of the fused head was used up by an earlier backward; call it again, or add up what is "
                "to be differentiated and call backward once."
            )
        job, ctx.job = ctx.job, None
        if job.scalar:
            made, ctx.made = ctx.made, None
            if given.device.type != "cpu" or given.item() != 1.0:  # on a CPU a multiplication by 1 is saved
                made = [g if g is None else g.mul_(given.to(g.dtype)) for g in made]
            return (None, *made)
        with _exactly():
            tensors = ctx.saved_tensors
            for term in job.terms:
                term.backpropagate(given.reshape(-1).index_select(0, term.batch.index))
            head, plan = job.head(tensors), job.plan(ctx.wanted.weights[0], False)
            kept = Kept(head, plan.kept) if plan.kept else None
            made = _cast(job.gradients(head, ctx.wanted, plan.chunk, kept), tensors)
        return (None, *made)


def _of_inputs(gradients: Iterable[Tensor | None]) -> list[Tensor | None]:
    """Gradients of inputs and weights in turn and of the bias, where the head is frozen."""
    return [*chain.from_iterable((gradient, None) for gradient in gradients), None]


def _cast(gradients: list[Tensor | None], tensors: Sequence[Tensor | None]) -> list[Tensor | None]:
    """Gradients in the dtypes of what they belong to."""
    pairs = zip(gradients, tensors, strict=True)
    return [None if g is None or x is None else g.to(x.dtype) for g, x in pairs]
