"""One evaluation, top to bottom: generate, read the answers, score targets and choices, put the numbers together."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from lossbench.data.example import Example
from lossbench.data.tokens import TokenizedExample
from lossbench.errors import ConfigError, DataError, nearest
from lossbench.evaluation import answers, rows
from lossbench.evaluation.choices import score_choices, score_letters
from lossbench.evaluation.featurizer import load as load_featurizer
from lossbench.evaluation.generate import generate
from lossbench.evaluation.metrics import aggregate
from lossbench.evaluation.open_ended import MauveProtocol, mauve_rows
from lossbench.evaluation.perplexity import target_nll
from lossbench.models.load import context_window

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from lossbench.data.task import Task

METRICS = ("exact_match", "confidence", "choices", "perplexity", "mauve")

OnProgress = Callable[[str, int, int, float], None]
"""Called after each batch with (`generate`, `score`, ..., examples done, examples in all, tokens per second)."""


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
    mauve: MauveProtocol | None = None,
    on_progress: OnProgress | None = None,
) -> Evaluation:
    """Evaluate `model` on `examples` of one split; `tokenized[i]` are the tokens of `examples[i]`.

    `metrics` are of

    exact_match   generate after the prompt and compare answers under `task.answer_rule`
    confidence    beside exact_match: how sure the model was of what it generated
    choices       the likelihood of each choice after the prompt, or of its letter where the prompt lists the choices
    perplexity    the likelihood of the targets
    mauve         sampled continuations against the targets, by `mauve` (`MauveProtocol()` unless given)

    None takes the task's own, as with `max_new_tokens`. Decoding is greedy unless a `sample_seed` is given (MAUVE
    always samples). Raises `DataError` where an answer or a choice is asked and a row has no gold one.
    """
    wanted = tuple(task.metrics if metrics is None else metrics)
    _check(task, wanted, examples, tokenized)
    prompts = [tokens.input_ids[: tokens.target_start] for tokens in tokenized]

    def during(stage: str) -> Callable[[int, int, float], None] | None:
        return partial(on_progress, stage) if on_progress else None

    columns: list[list[rows.Row]] = [[rows.identity(*pair, split) for pair in zip(examples, tokenized, strict=True)]]

    if "exact_match" in wanted:
        completions = generate(
            model,
            tokenizer,
            prompts,
            max_new_tokens=task.max_new_tokens if max_new_tokens is None else max_new_tokens,
            stop_strings=task.stop_strings,
            batch_size=batch_size,
            sample_seed=sample_seed,
            temperature=temperature,
            on_progress=during("generate"),
        )
        written = zip(examples, tokenized, completions, strict=True)
        columns.append([rows.answer(task.answer_rule, *parts) for parts in written])
        if "confidence" in wanted:
            said = [
                TokenizedExample(example.id, [*prompt, *completion.token_ids], len(prompt))
                for example, prompt, completion in zip(examples, prompts, completions, strict=True)
            ]
            sure = target_nll(model, said, batch_size=batch_size, on_progress=during("confidence"))
            columns.append([rows.confidence(score) for score in sure])

    if "choices" in wanted:
        window = context_window(model) or sys.maxsize
        score = score_letters if rows.asks_for_letter(examples[0]) else score_choices
        found: Sequence[Any] = score(
            model, tokenizer, examples, max_length=window, batch_size=batch_size, on_progress=during("choices")
        )
        row = rows.letter_choice if rows.asks_for_letter(examples[0]) else rows.choice
        columns.append([row(*pair) for pair in zip(examples, found, strict=True)])

    if "perplexity" in wanted:
        scores = target_nll(model, tokenized, batch_size=batch_size, on_progress=during("score"))
        scored = zip(examples, tokenized, scores, strict=True)
        columns.append([rows.likelihood(task.ends_with_eos, *parts) for parts in scored])

    if "mauve" in wanted:
        protocol = mauve or MauveProtocol()
        featurizer = load_featurizer(protocol.featurizer, pooling=protocol.pooling)
        columns.append(
            mauve_rows(
                model, tokenizer, examples, tokenized, featurizer, protocol,
                batch_size=batch_size, on_progress=on_progress,
            )
        )  # fmt: skip

    table = [{name: value for part in parts for name, value in part.items()} for parts in zip(*columns, strict=True)]
    return Evaluation(aggregate(table, split), table)


def _check(
    task: Task, wanted: Sequence[str], examples: Sequence[Example], tokenized: Sequence[TokenizedExample]
) -> None:
    if "confidence" in wanted and "exact_match" not in wanted:
        raise ConfigError("The metric confidence is that of generated answers: ask for exact_match too.")
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
                or answers.extract(rows.gold_text(example, task.answer_rule), task.answer_rule) is None
            ):
                raise DataError(
                    f"{example.id}: no answer can be read from the gold text {example.answer!r} by the rule "
                    f"{task.answer_rule!r}, so nothing could match it: mend the row or leave it out."
                )
    if "choices" in wanted:
        for example in examples:
            if example.gold_choice is None or rows.asks_for_letter(example) != rows.asks_for_letter(examples[0]):
                raise DataError(
                    f"{example.id}: the answer {example.answer!r} is not the letter of one of its "
                    f"{len(example.choices)} choices, or its prompt asks in another way than the first one: mend the "
                    "row or leave it out."
                )
