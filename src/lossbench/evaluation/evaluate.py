"""One evaluation, top to bottom: generate, read the answers, score targets and choices, put the numbers together."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from lossbench.data.example import Example
from lossbench.data.tokens import TokenizedExample, tokenize
from lossbench.errors import ConfigError, DataError, nearest
from lossbench.evaluation import answers, rows
from lossbench.evaluation.choices import score_choices, score_letters
from lossbench.evaluation.featurizer import load as load_featurizer
from lossbench.evaluation.generate import generate
from lossbench.evaluation.mauve_metrics import best_temperature
from lossbench.evaluation.mauve_protocol import MauveProtocol, new_tokens
from lossbench.evaluation.memorisation import Passage, memorisation_rows
from lossbench.evaluation.metrics import aggregate
from lossbench.evaluation.open_ended import CONTINUATION, TUNED, TUNING, Draw, Material, greedy_rows, mauve_rows
from lossbench.evaluation.perplexity import target_nll
from lossbench.evaluation.whole_texts import WholeTexts, whole_text_rows
from lossbench.models.load import context_window

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from lossbench.data.task import Task
    from lossbench.evaluation.featurizer import Featurizer

log = logging.getLogger(__name__)

METRICS = ("exact_match", "confidence", "choices", "perplexity", "mauve")
MANY_CUT_OFF = 0.01
"""A larger share of answers that end at the length limit is said."""

OnProgress = Callable[[str, int, int, float], None]
"""Called after each batch with (`generate`, `score`, ..., examples done, examples in all, tokens per second)."""


@dataclass(frozen=True)
class Evaluation:
    """`metrics` by name (`test/em`, `test/nll`, ...), all of them computed from `rows`, one an example."""

    metrics: dict[str, float]
    rows: list[dict[str, Any]]


def chosen_metrics(task: Task, *, generate: bool = True, mauve: bool = False) -> tuple[str, ...]:
    """The task's own metrics, with the confidence of what is generated and with MAUVE where it is asked for."""
    kept = [name for name in task.metrics if generate or name != "exact_match"]
    more = [*(["confidence"] if "exact_match" in kept else []), *(["mauve"] if mauve else [])]
    return (*kept, *(name for name in more if name not in kept))


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
    samples: int = 0,
    sample_temperature: float = 1.0,
    batch_size: int = 8,
    material: Material | None = None,
    whole_texts: WholeTexts | None = None,
    memorised: Sequence[Passage] = (),
    on_progress: OnProgress | None = None,
) -> Evaluation:
    """Evaluate `model` on `examples` of one split; `tokenized[i]` are the tokens of `examples[i]`.

    `metrics` are of

    exact_match   generate after the prompt and compare answers under `task.answer_rule`
    confidence    beside exact_match: how sure the model was of what it generated
    choices       the likelihood of each choice after the prompt, or of its letter where the prompt lists the choices
    perplexity    the likelihood of the targets
    mauve         sampled continuations against human ones, of `material` (the examples themselves under
                  `MauveProtocol()` unless given)

    None takes the task's own, as with `max_new_tokens`. Decoding is greedy unless a `sample_seed` is given (MAUVE
    always samples). With `samples`, exact_match draws so many answers more of each example, with the seeds 0, 1, ...
    and `sample_temperature`, for pass@k. With `whole_texts`, their perplexity in windows beside everything else; with
    `memorised` passages, whether the model goes on with them verbatim. Raises `DataError` where an answer or a choice
    is asked and a row has no gold one.
    """
    wanted = tuple(task.metrics if metrics is None else metrics)
    _check(task, wanted, examples, tokenized)
    work = _Work(model, tokenizer, task, examples, tokenized, max_new_tokens, batch_size, on_progress)
    columns = [[rows.identity(*pair, split) for pair in zip(examples, tokenized, strict=True)]]
    if "exact_match" in wanted:
        columns += work.answers(sample_seed, temperature, confidence="confidence" in wanted)
        if samples:
            columns.append(work.sampled_answers(samples, sample_temperature))
    if "choices" in wanted:
        columns.append(work.choices())
    if "perplexity" in wanted:
        columns.append(work.likelihoods())
    others: list[rows.Row] = []
    if "mauve" in wanted:
        found = material or Material(MauveProtocol())
        featurizer = load_featurizer(found.protocol.featurizer, pooling=found.protocol.pooling)
        if found.evaluated is None:
            columns.append(work.mauve(featurizer, found.protocol))
            others = work.tuned(featurizer, found, split, columns[-1])
        else:
            others = work.of_continuations(found.evaluated).continuations(featurizer, found, split)
    if whole_texts is not None:
        others = [*others, *whole_text_rows(model, tokenizer, whole_texts, split, batch_size=batch_size)]
    if memorised:
        during = work.during("memorisation")
        others += memorisation_rows(model, tokenizer, memorised, batch_size=batch_size, on_progress=during)
    table = [{name: value for part in parts for name, value in part.items()} for parts in zip(*columns, strict=True)]
    table = rows.filled([*table, *others])
    return Evaluation(aggregate(table, split), table)


@dataclass(frozen=True)
class _Work:
    """What is evaluated, and the stages of it; each returns one row of columns an example."""

    model: PreTrainedModel
    tokenizer: Any
    task: Task
    examples: Sequence[Example]
    tokenized: Sequence[TokenizedExample]
    max_new_tokens: int | None
    batch_size: int
    on_progress: OnProgress | None

    def during(self, stage: str) -> Callable[[int, int, float], None] | None:
        return partial(self.on_progress, stage) if self.on_progress else None

    @property
    def prompts(self) -> list[list[int]]:
        return [tokens.input_ids[: tokens.target_start] for tokens in self.tokenized]

    def written(self, stage: str, seed: int | None, temperature: float) -> list[Any]:
        return generate(
            self.model,
            self.tokenizer,
            self.prompts,
            max_new_tokens=self.task.max_new_tokens if self.max_new_tokens is None else self.max_new_tokens,
            stop_strings=self.task.stop_strings,
            batch_size=self.batch_size,
            sample_seed=seed,
            temperature=temperature,
            on_progress=self.during(stage),
        )

    def answers(self, seed: int | None, temperature: float, *, confidence: bool) -> list[list[rows.Row]]:
        completions = self.written("generate", seed, temperature)
        triples = list(zip(self.examples, self.tokenized, completions, strict=True))
        columns = [[rows.answer(self.task.answer_rule, *triple) for triple in triples]]
        cut_off = sum(completion.stop_reason == "length" for completion in completions)
        if self.task.answer_rule != "letter" and cut_off > MANY_CUT_OFF * len(completions):
            log.warning(
                "%d of %d answers were cut off by their limit: a larger evaluation.max_new_tokens lets them end.",
                cut_off, len(completions),
            )  # fmt: skip
        if confidence:
            said = [
                TokenizedExample(example.id, [*prompt, *completion.token_ids], len(prompt))
                for example, prompt, completion in zip(self.examples, self.prompts, completions, strict=True)
            ]
            sure = target_nll(self.model, said, batch_size=self.batch_size, on_progress=self.during("confidence"))
            columns.append([rows.confidence(score) for score in sure])
        return columns

    def sampled_answers(self, samples: int, temperature: float) -> list[rows.Row]:
        drawn = [self.written(f"sample {seed + 1}", seed, temperature) for seed in range(samples)]
        of_examples = zip(*drawn, strict=True)
        return [
            rows.sampled(self.task.answer_rule, example, [completion.text for completion in completions])
            for example, completions in zip(self.examples, of_examples, strict=True)
        ]

    def choices(self) -> list[rows.Row]:
        by_letter = rows.asks_for_letter(self.examples[0])
        score: Any = score_letters if by_letter else score_choices
        row: Any = rows.letter_choice if by_letter else rows.choice
        found = score(
            self.model,
            self.tokenizer,
            self.examples,
            max_length=context_window(self.model) or sys.maxsize,
            batch_size=self.batch_size,
            on_progress=self.during("choices"),
        )
        return [row(*pair) for pair in zip(self.examples, found, strict=True)]

    def likelihoods(self) -> list[rows.Row]:
        scores = target_nll(
            self.model, self.tokenized, batch_size=self.batch_size, on_progress=self.during("score")
        )  # fmt: skip
        scored = zip(self.examples, self.tokenized, scores, strict=True)
        return [rows.likelihood(self.task.ends_with_eos, *parts) for parts in scored]

    def of_continuations(self, examples: Sequence[Example]) -> _Work:
        """The same model on prefixes with human continuations. The window does not cut them: generation ends there."""
        tokens = tokenize(examples, self.tokenizer, sys.maxsize, ends_with_eos=False)
        parts = (self.model, self.tokenizer, self.task, examples, tokens)
        return _Work(*parts, self.max_new_tokens, self.batch_size, self.on_progress)

    def mauve(
        self, featurizer: Featurizer, protocol: MauveProtocol, draws: Sequence[Draw] | None = None
    ) -> list[rows.Row]:
        return mauve_rows(
            self.model, self.tokenizer, self.examples, self.tokenized, featurizer, protocol,
            draws=draws, batch_size=self.batch_size, on_progress=self.on_progress,
        )  # fmt: skip

    def continuations(self, featurizer: Featurizer, material: Material, split: str) -> list[rows.Row]:
        """Rows of their own: the greedy and the sampled continuations of a language-modelling task."""
        targets = [len(row.input_ids) - row.target_start for row in self.tokenized]
        columns = [
            self._identities(split, CONTINUATION),
            greedy_rows(
                self.model, self.tokenizer, self.tokenized, new_tokens(material.protocol, self.examples, targets),
                batch_size=self.batch_size, on_progress=self.on_progress,
            ),
            self.mauve(featurizer, material.protocol),
        ]  # fmt: skip
        found = [one | other | another for one, other, another in zip(*columns, strict=True)]
        return [*found, *self.tuned(featurizer, material, split, found)]

    def tuned(
        self, featurizer: Featurizer, material: Material, split: str, at_first: Sequence[rows.Row]
    ) -> list[rows.Row]:
        """Rows of the temperatures tried on validation, and of the best one where it is another than at first."""
        if not material.tuning:
            return []
        protocol = material.protocol
        tuning = self.of_continuations(material.tuning)
        tried = tuning.mauve(featurizer, protocol, [Draw(protocol.generation_seeds[0], t) for t in protocol.tune])
        found = _joined(tuning._identities("validation", TUNING), tried)
        best = best_temperature(tried)
        if best is not None and best != at_first[0]["mauve_temperatures"][0]:
            again = self.mauve(featurizer, protocol, [Draw(seed, best) for seed in protocol.generation_seeds])
            found += _joined(self._identities(split, TUNED), again)
        return found

    def _identities(self, split: str, view: str) -> list[rows.Row]:
        pairs = zip(self.examples, self.tokenized, strict=True)
        return [rows.identity(*pair, split) | {"view": view} for pair in pairs]


def _joined(left: Sequence[rows.Row], right: Sequence[rows.Row]) -> list[rows.Row]:
    return [one | other for one, other in zip(left, right, strict=True)]


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
            if example.answer is None or _gold_answer(example, task.answer_rule) is None:
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


def _gold_answer(example: Example, rule: str) -> str | None:
    return answers.extract(rows.gold_text(example, rule), rule, rows.letters_of(example))
