"""One or two passes over the tokens for all terms together, and the autograd function around them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .head import Gradients, Head, Wanted
from .rows import Block, RowGradient, softmax
from .terms import Term


@dataclass
class Job:
    """What one call of the fused head has to do.

    Args:
        terms: the losses on the rows of the head.
        labels: (n,) label of each row.
        dtype: of the matrix products.
        chunk: rows whose logits exist at a time.
        outcome: makes the result of the call from the values of the terms; no gradient passes.
        differentiable: False where no gradient will be asked for.
        scalar: the upstream gradients of the terms are known, so that gradients are made in the forward pass.
    """

    terms: Sequence[Term]
    labels: Tensor
    dtype: torch.dtype
    chunk: int
    outcome: Callable[[], Tensor]
    differentiable: bool
    scalar: bool

    def head(self, tensors: Sequence[Tensor | None]) -> Head:
        """From (inputs, weight) in turn and the bias, in the dtype of the products."""
        *pairs, bias = (None if x is None else x.detach().to(self.dtype) for x in tensors)
        return Head(pairs[0::2], pairs[1::2], bias)  # type: ignore[arg-type]

    def observe(self, head: Head, *, differentiable: bool) -> None:
        """First pass, for the terms that need it, or for values alone."""
        terms = [term for term in self.terms if term.deferred or not (differentiable and self.scalar)]
        if not terms:
            return
        needs = frozenset().union(*(term.needs for term in terms))
        for start, logits in self._chunks(head):
            for a, b, rows in head.blocks(logits, write=False):
                labels = self.labels[start + a : start + b]
                block = Block.of(start + a, labels, rows, needs, head.buffers, keep=True)
                for term in terms:
                    term.observe(block)
        for term in terms:
            term.evaluate(differentiable=differentiable and (not self.scalar or term.upstream is not None))

    def gradients(self, head: Head, wanted: Wanted) -> Gradients:
        """The pass that makes the gradients (and the values of terms that were not observed)."""
        gradients = Gradients(head, wanted)
        gate_only = all(term.gate_only for term in self.terms)
        for start, logits in self._chunks(head):
            stop = start + logits.shape[0]
            if gate_only:
                gradients.add(logits, start, stop, self._gated(head, start, logits))
            else:
                self._assembled(head, start, logits)
                gradients.add(logits, start, stop)
        return gradients

    def backpropagate(self, terms: Iterable[Term]) -> None:
        """Derivatives of terms that were observed, where those of their values are known before."""
        for term in terms:
            if term.upstream is not None:
                term.backpropagate(term.place.as_tokens(term.upstream) if term.upstream.dim() else term.upstream)

    def only_hidden(self, wanted: Wanted) -> bool:
        """Whether one pass will do although some term needs two: the head is frozen, and every gradient is linear in p.

        Then dH = scale (p @ W) + a few rows of W, and p @ W can be made before the scale is known.
        """
        linear = all(term.linear_in_p for term in self.terms if term.upstream is not None or term.deferred)
        return linear and any(term.deferred for term in self.terms) and not (any(wanted.weights) or wanted.bias)

    def of_frozen_head(self, head: Head, wanted: Wanted) -> list[Tensor | None]:
        """Values of all terms and the gradients of the inputs in a single pass."""
        needs = frozenset().union(*(term.needs for term in self.terms))
        means = [torch.empty_like(x) for x in head.inputs]  # (p - onehot) @ W
        for start, logits in self._chunks(head):
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
        found: list[Tensor | None] = []
        for mean, weight, w in zip(means, head.weights, wanted.inputs, strict=True):
            found += [out.times(mean, weight, self.labels) if w else None, None]
        return [*found, None]

    def _gated(self, head: Head, start: int, logits: Tensor) -> Tensor:
        """Turn the logits of a chunk into p - onehot -> the gate of each row, by which it must be multiplied."""
        log_p = torch.empty(logits.shape[0], dtype=head.float_dtype, device=logits.device)
        labels = self.labels[start : start + logits.shape[0]]
        for a, b, rows in head.blocks(logits, write=True):
            cells = labels[a:b, None]
            z_t = rows.gather(1, cells).squeeze(1)
            log_p[a:b], _, others = softmax(rows, labels[a:b], z_t, rows.amax(1), out=rows)
            rows.scatter_(1, cells, -others[:, None])
        block = Block(start, start + len(labels), labels, logits, log_p=log_p)
        out = RowGradient.zero(log_p)
        for term in self.terms:
            term.gradient(block, out)
        return out.gate

    def _assembled(self, head: Head, start: int, logits: Tensor) -> None:
        """Turn the logits of a chunk into the gradient with respect to them."""
        needs = frozenset().union(*(term.needs for term in self.terms))
        for a, b, rows in head.blocks(logits, write=True):
            block = Block.of(start + a, self.labels[start + a : start + b], rows, needs, head.buffers)
            out = RowGradient.zero(rows[:, 0])
            for term in self.terms:
                term.gradient(block, out)
            out.write(block)

    def _chunks(self, head: Head) -> Iterator[tuple[int, Tensor]]:
        """Start and logits of every chunk; a second pass goes backwards, from the logits that the first one left."""
        starts = list(range(0, head.n, self.chunk))
        for start in reversed(starts) if head.held is not None else starts:
            yield start, head.logits(start, min(start + self.chunk, head.n))


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
            if differentiable and job.scalar and job.only_hidden(wanted):
                ctx.made = _cast(job.of_frozen_head(head, wanted), tensors)
                return job.outcome()
            job.observe(head, differentiable=differentiable)
            if not differentiable:
                return job.outcome()
            if job.scalar:
                job.backpropagate(term for term in job.terms if term.deferred)
                ctx.made = _cast(job.gradients(head, wanted).finished(), tensors)
            else:
                ctx.wanted = wanted
                ctx.save_for_backward(*tensors)
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
            made = _cast(job.gradients(job.head(tensors), ctx.wanted).finished(), tensors)
        return (None, *made)


def _cast(gradients: list[Tensor | None], tensors: Sequence[Tensor | None]) -> list[Tensor | None]:
    """Gradients in the dtypes of what they belong to."""
    pairs = zip(gradients, tensors, strict=True)
    return [None if g is None or x is None else g.to(x.dtype) for g, x in pairs]
