"""What losses need beyond logits and labels, found from the model, its tokenizer and the training split."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from lossbench.data.batches import IGNORED, Batch
from lossbench.data.tokens import TokenizedExample
from lossbench.errors import ConfigError
from lossbench.evaluation.batching import evaluating
from lossbench.losses import Mixture
from lossbench.models.load import head_weight, load_head
from lossbench.models.vocabulary import number_values

PROVIDED = {
    "embedding", "token_values", "class_counts", "token_frequencies", "tokens", "ref_logits", "old_log_probs",
    "head_logits", "sequence_ids",
}  # fmt: skip


class Context(nn.Module):
    """Binds once what stays fixed during training; `of` gives what belongs to a batch.

    `embedding`: the LM head as it is before training, as it is now, or another model's. `token_values`: numbers that
    tokens stand for. `class_counts`, `token_frequencies`: how often each token is a label of the term's scope in the
    training split. `ref_logits`: of the model before training. `old_log_probs`: of a snapshot that is renewed every
    `snapshot_every` steps. `head_logits`: of a second LM head, which is trained with the model.
    """

    def __init__(self, objective: Mixture, model: Any, tokenizer: Any, train: Sequence[TokenizedExample]) -> None:
        super().__init__()
        self._adaptive: list[tuple[Any, Any]] = []  # loss, head; in a list they stay the modules of their owners
        self._reference: _Snapshot | None = None
        self._snapshot: _Snapshot | None = None
        self._snapshot_every = 0
        self._wants_tokens = False
        self.second_head: nn.Linear | None = None
        head = model.get_output_embeddings()
        if head is None or not hasattr(head, "weight"):
            raise ConfigError(f"{type(model).__name__} has no linear LM head that losses could be computed from.")
        vocabulary = head_weight(head).shape[0]
        losses: dict[str, Any] = dict(objective.losses.items())
        for name, loss in losses.items():
            self._provide(name, loss, objective.settings[name].scope, model, head, tokenizer, train, vocabulary)

    @property
    def wants_hidden_states(self) -> bool:
        """Whether `of` needs the last hidden states of the model's forward pass."""
        return self.second_head is not None

    def of(self, model: nn.Module, batch: Batch, hidden: Tensor | None, step: int) -> dict[str, Any]:
        """Context of one batch at an optimizer step (from 0), as keyword arguments of a loss."""
        found: dict[str, Any] = {}
        for loss, head in self._adaptive:  # bound, not passed: another term may have a fixed embedding
            loss.bind(embedding=head_weight(head))
        if self._wants_tokens:
            ids, known = batch.input_ids[:, 1:], batch.attention_mask[:, 1:].bool()
            found["tokens"] = nn.functional.pad(ids.masked_fill(~known, -1), (0, 1), value=-1)
        if self._reference is not None:
            found["ref_logits"] = self._reference.logits(model, batch)
        if self._snapshot is not None:
            if step % self._snapshot_every == 0 and step != self._snapshot.step:
                self._snapshot = _Snapshot(model, step)
            labels = batch.labels["sequence"]
            log_p = self._snapshot.logits(model, batch).float().log_softmax(-1)
            found["old_log_probs"] = log_p.gather(-1, labels.masked_fill(labels == IGNORED, 0)[..., None]).squeeze(-1)
        if self.second_head is not None:
            assert hidden is not None
            found["head_logits"] = self.second_head(hidden)
        return found

    def snapshot_state(self) -> dict[str, Any] | None:
        """The snapshot that `old_log_probs` come from, for a checkpoint; None where no loss asks for them."""
        return None if self._snapshot is None else {"step": self._snapshot.step, "weights": self._snapshot.weights}

    def load_snapshot_state(self, state: Mapping[str, Any] | None) -> None:
        """Put back what `snapshot_state` gave."""
        if self._snapshot is not None and state is not None:
            self._snapshot.step, self._snapshot.weights = state["step"], state["weights"]

    def _provide(
        self,
        name: str,
        loss: Any,
        scope: str,
        model: Any,
        head: Any,
        tokenizer: Any,
        train: Sequence[TokenizedExample],
        vocabulary: int,
    ) -> None:
        wanted = {*loss.needs, *loss.optional}
        if missing := sorted(set(loss.needs) - PROVIDED):
            raise ConfigError(f"loss {name} needs {', '.join(missing)}, which training does not provide.")
        if "embedding" in wanted:
            if loss.cost_embedding == "adaptive":
                self._adaptive.append((loss, head))
                loss.bind(embedding=head_weight(head))
            elif loss.cost_embedding == "fixed":
                loss.bind(embedding=head_weight(head).clone())
            else:
                loss.bind(embedding=_head_of_another(loss.cost_embedding, vocabulary))
        if "token_values" in wanted:
            loss.bind(token_values=number_values(tokenizer, vocabulary))
        for counted in {"class_counts", "token_frequencies"} & wanted:
            loss.bind(**{counted: label_counts(train, scope, vocabulary)})
        if "tokens" in wanted:
            self._wants_tokens = True
        if "ref_logits" in wanted:
            self._reference = _Snapshot(model, step=0)
        if "old_log_probs" in wanted:
            self._snapshot, self._snapshot_every = _Snapshot(model, step=0), loss.snapshot_every
        if "head_logits" in wanted:
            self.second_head = nn.Linear(head_weight(head).shape[1], vocabulary, bias=False, dtype=head.weight.dtype)
            nn.init.normal_(self.second_head.weight, std=getattr(model.config, "initializer_range", 0.02))


class _Snapshot:
    """The trainable weights of one moment; the frozen ones are shared with the model."""

    def __init__(self, model: nn.Module, step: int) -> None:
        self.step = step
        self.weights = {
            name: weight.detach().clone() for name, weight in model.named_parameters() if weight.requires_grad
        }

    def logits(self, model: nn.Module, batch: Batch) -> Tensor:
        """(B, T, V) logits of the model as it was, without dropout."""
        weights = {name: weight.to(batch.input_ids.device) for name, weight in self.weights.items()}
        inputs = {"input_ids": batch.input_ids, "attention_mask": batch.attention_mask}
        with evaluating(model):
            return functional_call(model, weights, kwargs=inputs).logits


def label_counts(train: Sequence[TokenizedExample], scope: str, vocabulary: int) -> Tensor:
    """(V,) float64: how often each token is a label of the scope in the training split, at least 1."""
    counts = torch.zeros(vocabulary, dtype=torch.float64)
    for example in train:
        first = max(example.target_start if scope == "answer" else 1, 1)
        ids = torch.tensor(example.input_ids[first:])
        counts += torch.bincount(ids, minlength=vocabulary)
    return counts.clamp_min(1)


def _head_of_another(path: str, vocabulary: int) -> Tensor:
    weight = load_head(path)
    if weight.shape[0] != vocabulary:
        raise ConfigError(
            f"cost_embedding={path!r} has {weight.shape[0]} rows, but the model has {vocabulary} tokens: "
            "take a model with the same vocabulary."
        )
    return weight
