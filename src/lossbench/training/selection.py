"""By which validation metric a checkpoint is chosen, and how that metric is measured while training runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lossbench.config import RunConfig
from lossbench.errors import ConfigError, nearest

if TYPE_CHECKING:
    from lossbench.data.example import Example
    from lossbench.data.task import Task
    from lossbench.data.tokens import TokenizedExample

NLL = "val/nll"
QUANTITIES = {  # what `evaluation.evaluate` computes it with, and whether more of it is better
    "nll": ("perplexity", False),
    "ppl": ("perplexity", False),
    "bits_per_byte": ("perplexity", False),
    "byte_ppl": ("perplexity", False),
    "word_ppl": ("perplexity", False),
    "token_accuracy": ("perplexity", True),
    "em": ("exact_match", True),
    "em_strict": ("exact_match", True),
    "em_flexible": ("exact_match", True),
    "acc": ("choices", True),
    "acc_norm": ("choices", True),
    "acc_bytes": ("choices", True),
    "letter_logprob": ("choices", True),
}


@dataclass(frozen=True)
class Criterion:
    """A metric of the validation split that means the same under every loss."""

    name: str  # such as val/nll
    needs: str  # metric of `evaluation.evaluate`
    higher_is_better: bool


def criterion(config: RunConfig, metrics: Sequence[str]) -> Criterion:
    """What `trainer.select_by` names, for a task with these `metrics`.

    Raises:
        ConfigError: it is the objective, whose values mean something else under every loss; unknown; or not measured on
            this task.
    """
    name = config.trainer.select_by
    split, _, quantity = name.partition("/")
    allowed = [f"val/{known}" for known in QUANTITIES]
    if split == "train" or quantity in {"loss", "objective", *config.loss.terms} or name in {"loss", "objective"}:
        raise ConfigError(
            f"trainer.select_by={name} is a value of the training objective, which means something else under every "
            f"loss, so that a comparison of losses would compare choices too: take {NLL}, or another of "
            f"{', '.join(allowed[1:])}."
        )
    if split in {"test", "validation"} and quantity in QUANTITIES:
        raise ConfigError(f"trainer.select_by={name} must be measured on the validation split: write val/{quantity}.")
    if name not in allowed:
        raise ConfigError(f"trainer.select_by={name} is no metric to choose by.{nearest(name, allowed)}")
    needs, higher = QUANTITIES[quantity]
    if needs not in {"perplexity", *metrics}:
        raise ConfigError(
            f"trainer.select_by={name} needs the metric {needs}, which dataset={config.dataset.name} does not have; it "
            f"has {', '.join(metrics)}."
        )
    return Criterion(name, needs, higher)


@dataclass(frozen=True)
class Validation:
    """The validation split, and how `chosen_by` is measured on it. Cross-entropy of the targets is always measured."""

    task: Task
    examples: Sequence[Example]
    tokens: Sequence[TokenizedExample]
    tokenizer: Any
    config: RunConfig

    @property
    def chosen_by(self) -> Criterion:
        return criterion(self.config, self.task.metrics)

    def measure(self, model: Any, on_batch: Callable[..., None]) -> dict[str, float]:
        """`val/nll` and the criterion by name; `on_batch` is called after every batch and may raise."""
        from lossbench.evaluation.evaluate import evaluate
        from lossbench.evaluation.perplexity import target_nll

        wanted, settings = self.chosen_by, self.config.evaluation
        if wanted.name == NLL:
            scores = target_nll(model, self.tokens, batch_size=settings.batch_size, on_progress=on_batch)
            return {NLL: sum(score.nll_sum for score in scores) / sum(score.n_tokens for score in scores)}
        found = evaluate(
            model,
            self.tokenizer,
            self.task,
            self.examples,
            self.tokens,
            split="validation",
            metrics=list(dict.fromkeys(("perplexity", wanted.needs))),
            max_new_tokens=settings.max_new_tokens,
            batch_size=settings.batch_size,
            on_progress=on_batch,
        ).metrics
        if wanted.name not in found:
            raise ConfigError(f"trainer.select_by={wanted.name} came out of no validation; it has {', '.join(found)}.")
        return {name: found[name] for name in dict.fromkeys((NLL, wanted.name))}
