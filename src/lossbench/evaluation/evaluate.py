"""One evaluation, top to bottom: generate, read the answers, score the targets, put the numbers together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from lossbench.data.example import Example
from lossbench.data.tokens import TokenizedExample
from lossbench.errors import ConfigError, DataError, nearest
from lossbench.evaluation import answers
from lossbench.evaluation.generate import Completion, generate
from lossbench.evaluation.metrics import aggregate
from lossbench.evaluation.perplexity import TargetScore, target_nll

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from lossbench.data.task import Task

METRICS = ("exact_match", "perplexity")

OnProgress = Callable[[str, int, int, float], None]
"""Called after each batch with (`generate` or `score`, examples done, examples in all, tokens per second)."""


@dataclass(frozen=True)
class Evaluation:
    """`metrics` by name (`test/em`, `test/nll`, ...), all of them computed from `rows`, one an example."""

    metrics: dict[str, float]
    rows: list[dict[str, Any]]


def evaluate(
    model: PreTrainedModel,
    tokenizer: Any,
    task: Task,
    examples: Sequence[Example],
    tokenized: Sequence[TokenizedExample],
    *,
    split: str,
    metrics: Sequence[str] | None = None,
    max_new_tokens: int | None = None,
    sample_seed: int | None = None,
    temperature: float = 1.0,
    batch_size: int = 8,
    on_progress: OnProgress | None = None,
) -> Evaluation:
    """Evaluate `model` on `examples` of one split; `tokenized[i]` are the tokens of `examples[i]`.

    `metrics` are of `exact_match` (generate after the prompt and compare answers under `task.answer_rule`) and
    `perplexity` (the likelihood of the targets); None takes the task's own, as with `max_new_tokens`. Decoding is
    greedy unless a `sample_seed` is given. Raises `DataError` where exact match is asked and no answer can be read from
    a gold text.
    """
    wanted = tuple(task.metrics if metrics is None else metrics)
    _check(task, wanted, examples, tokenized)
    columns: list[list[dict[str, Any]]] = [
        [_identity(example, tokens, split) for example, tokens in zip(examples, tokenized, strict=True)]
    ]

    if "exact_match" in wanted:
        completions = generate(
            model,
            tokenizer,
            [tokens.input_ids[: tokens.target_start] for tokens in tokenized],
            max_new_tokens=task.max_new_tokens if max_new_tokens is None else max_new_tokens,
            stop_strings=task.stop_strings,
            batch_size=batch_size,
            sample_seed=sample_seed,
            temperature=temperature,
            on_progress=partial(on_progress, "generate") if on_progress else None,
        )
        columns.append([_answer(task.answer_rule, *row) for row in zip(examples, tokenized, completions, strict=True)])

    if "perplexity" in wanted:
        progress = partial(on_progress, "score") if on_progress else None
        scores = target_nll(model, tokenized, batch_size=batch_size, on_progress=progress)
        columns.append([_likelihood(task.ends_with_eos, *row) for row in zip(examples, tokenized, scores, strict=True)])

    rows = [{name: value for part in parts for name, value in part.items()} for parts in zip(*columns, strict=True)]
    return Evaluation(aggregate(rows, split), rows)


def _identity(example: Example, tokens: TokenizedExample, split: str) -> dict[str, Any]:
    return {
        "id": example.id,
        "split": split,
        "prompt": example.prompt,
        "prompt_tokens": tokens.target_start,
        "truncated": tokens.truncated,
    }


def _answer(rule: str, example: Example, tokens: TokenizedExample, completion: Completion) -> dict[str, Any]:
    text, gold = completion.text, _gold_text(example, rule)
    row = {
        "completion": text,
        "stop_reason": completion.stop_reason,
        "n_new_tokens": completion.n_new_tokens,
        "gold": example.answer,
        "gold_value": answers.extract(gold, rule),
        "prediction": answers.extract(text, rule),
        "em": answers.exact_match(text, gold, rule),
        "error_class": answers.error_class(
            text, gold, completion.stop_reason, rule=rule, truncated_prompt=tokens.truncated
        ),
    }
    if rule == "lossbench":  # numbers as others read them, beside ours
        row |= {
            "em_strict": answers.exact_match(text, gold, "gsm8k_strict"),
            "em_flexible": answers.exact_match(text, gold, "gsm8k_flexible"),
            "em_seed": answers.exact_match(text, gold, "seed"),
        }
    return row


def _likelihood(ends_with_eos: bool, example: Example, tokens: TokenizedExample, score: TargetScore) -> dict[str, Any]:
    is_whole = tokens.target_start > 0  # otherwise its first token is unscored, and the bytes are not those of the NLL
    return {
        "nll_sum": score.nll_sum,
        "n_tokens": score.n_tokens,
        "eos_nll": score.last_nll if ends_with_eos else None,
        "entropy_sum": score.entropy_sum,
        "n_correct_tokens": score.n_correct,
        "n_bytes": len(example.target.encode()) if is_whole else None,
    }


def _gold_text(example: Example, rule: str) -> str:
    """The gold answer as a text that every number rule can read: a bare `12` gets the marker that some rules need."""
    answer = example.answer or ""
    return answer if rule == "letter" or "####" in answer else f"#### {answer}"


def _check(
    task: Task, wanted: Sequence[str], examples: Sequence[Example], tokenized: Sequence[TokenizedExample]
) -> None:
    if not wanted:
        raise ConfigError(f"No metric was asked for: choose of {', '.join(METRICS)}.")
    for name in wanted:
        if name not in METRICS:
            raise ConfigError(f"{name!r} is no metric of an evaluation.{nearest(name, METRICS)}")
    if not examples or [example.id for example in examples] != [tokens.id for tokens in tokenized]:
        raise DataError(
            f"{len(examples)} examples and {len(tokenized)} tokenised examples do not belong together one by one."
        )
    if "exact_match" in wanted:
        for example in examples:
            if (
                example.answer is None
                or answers.extract(_gold_text(example, task.answer_rule), task.answer_rule) is None
            ):
                raise DataError(
                    f"{example.id}: no answer can be read from the gold text {example.answer!r} by the rule "
                    f"{task.answer_rule!r}, so nothing could match it: mend the row or leave it out."
                )
