"""MAUVE of a model's continuations, with the spread that its two kinds of chance cause.

Sampling is unbiased and repeated with several generation seeds, k-means with several clustering seeds. The buckets of
each text are kept in its row: from them every value can be computed again (`mauve_metrics`). Three views of rows:

continuation  the evaluated split at the protocol's temperature, with the greedy continuation beside the samples
tuning        the validation split, one sample at each temperature that is tried
tuned         the evaluated split again, at the temperature that was best on validation
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lossbench.config import EvaluationConfig, MauveConfig
from lossbench.data.example import Example
from lossbench.data.tokens import TokenizedExample
from lossbench.errors import DataError
from lossbench.evaluation import mauve, mauve_protocol
from lossbench.evaluation.featurizer import Featurizer
from lossbench.evaluation.featurizer import check_available as check_featurizer
from lossbench.evaluation.generate import generate
from lossbench.evaluation.mauve_protocol import Cutter, MauveProtocol, Pieces, flat, regrouped

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from transformers import PreTrainedModel

    from lossbench.data.task import Task

log = logging.getLogger(__name__)

CONTINUATION, TUNING, TUNED = "continuation", "tuning", "tuned"

OnProgress = Callable[[str, int, int, float], None]
Row = dict[str, Any]


@dataclass(frozen=True)
class Material:
    """What MAUVE is computed on: examples with a prompt to continue and the human continuation as target.

    `evaluated` is None where the task's own examples serve; `tuning` are those of the validation split.
    """

    protocol: MauveProtocol
    evaluated: list[Example] | None = None
    tuning: list[Example] | None = None


def protocol_of(config: MauveConfig) -> MauveProtocol:
    """The protocol that a configuration asks for; its seeds are 0, 1, 2, ..."""
    counted = {name: tuple(range(getattr(config, name))) for name in ("generation_seeds", "clustering_seeds")}
    rest = config.model_dump(exclude={*counted, "tune_limit"})
    return MauveProtocol(**{**rest, **counted})


def material(
    task: Task, config: EvaluationConfig, examples: Sequence[Example], protocol: MauveProtocol | None = None
) -> Material | None:
    """The texts that `protocol` (or else `config.mauve`) asks for, or None where neither is given.

    A language-modelling task gives its own continuations; for any other task its evaluated `examples` serve. What
    cannot work is said here, before a model is trained: fewer than 200 texts, a missing package, a featurizer out of
    reach.
    """
    if protocol is None and config.mauve is None:
        return None
    protocol = protocol or protocol_of(config.mauve)  # type: ignore[arg-type]
    mauve.check_installed()
    check_featurizer(protocol.featurizer)
    continuations = getattr(task, "continuations", None)
    evaluated = None if continuations is None else continuations(config.split)[: config.limit]
    texts, name = examples if evaluated is None else evaluated, type(task).__name__
    mauve.check_number_of_texts(len(texts), f"the {config.split} split of {name}")
    tuning = None
    if protocol.tune:
        limit = config.mauve.tune_limit if config.mauve else None
        tuning = (continuations or task.examples)("validation")[:limit]
        mauve.check_number_of_texts(len(tuning), f"the validation split of {name}, where temperatures are tried,")
    return Material(protocol, evaluated, tuning)


@dataclass(frozen=True)
class Draw:
    """One sample of every text."""

    seed: int
    temperature: float


def mauve_rows(
    model: PreTrainedModel,
    tokenizer: Any,
    examples: Sequence[Example],
    tokenized: Sequence[TokenizedExample],
    featurizer: Featurizer,
    protocol: MauveProtocol,
    *,
    draws: Sequence[Draw] | None = None,
    batch_size: int = 8,
    on_progress: OnProgress | None = None,
) -> list[Row]:
    """Columns for each example, with a draw for each generation seed at the protocol's temperature unless `draws` are
    given:

    mauve_target, samples     the human continuation, and one of the model a draw
    mauve_human, mauve_model  for each draw and clustering seed the buckets of the pieces of the human and of the
                              model's text, none where they were dropped
    mauve_ceiling, mauve_half for each clustering seed: human texts of even rows against those of odd rows, and human
                              texts of even rows against the model's of odd rows (first draw); the same number of texts
    mauve_name, mauve_protocol, mauve_tokens, mauve_buckets, mauve_clusterings, mauve_temperatures   how they were made

    Raises `DataError` for fewer than 200 examples. Where a draw has fewer than 200 texts left, because the model's are
    too short, its buckets are empty and a warning says so: a model that fails must not take its other numbers along.
    The first replicate is computed by mauve-text as well, and must agree.
    """
    mauve.check_number_of_texts(len(examples), "this evaluation")
    draws = draws or [Draw(seed, protocol.temperature) for seed in protocol.generation_seeds]
    human = mauve_protocol.human_texts(examples)
    cutter = Cutter.of(protocol, featurizer, human)
    human_side = _Side.of(cutter, cutter.pieces(human, 0), batch_size)
    count = protocol.buckets or mauve.number_of_buckets(max(len(examples), len(human_side.features)))
    limit = mauve_protocol.new_tokens(protocol, examples, [len(row.input_ids) - row.target_start for row in tokenized])
    rows: list[Row] = [
        {"mauve_target": example.target, "samples": [], "mauve_human": [], "mauve_model": []} for example in examples
    ]
    clusterings = _Clusterings(protocol.clusterings, count)

    for number, draw in enumerate(draws):
        completions = generate(
            model,
            tokenizer,
            [row.input_ids[: row.target_start] for row in tokenized],
            max_new_tokens=limit,
            batch_size=batch_size,
            sample_seed=draw.seed,
            temperature=draw.temperature,
            on_progress=_stage(on_progress, f"sample {number + 1}"),
        )
        for row, completion in zip(rows, completions, strict=True):
            row["samples"].append(completion.text)
        texts = mauve_protocol.model_texts(protocol, examples, [completion.text for completion in completions])
        pair = _pair(protocol, human_side, cutter, texts, draw, batch_size)
        clusterings.add(rows, pair)
        if number == 0 and protocol.ceiling and pair is not None and protocol.is_paired:
            clusterings.add_ceiling(rows, *pair)
    shared = {
        "mauve_name": protocol.label(featurizer),
        "mauve_protocol": protocol.protocol,
        "mauve_tokens": cutter.length,
        "mauve_buckets": count,
        "mauve_clusterings": len(protocol.clusterings),
        "mauve_temperatures": [draw.temperature for draw in draws],
    }
    return [row | shared for row in rows]


def greedy_rows(
    model: PreTrainedModel,
    tokenizer: Any,
    tokenized: Sequence[TokenizedExample],
    limit: int,
    *,
    batch_size: int = 8,
    on_progress: OnProgress | None = None,
) -> list[Row]:
    """Columns of the greedy continuation, which shows repetition that sampling hides."""
    completions = generate(
        model,
        tokenizer,
        [row.input_ids[: row.target_start] for row in tokenized],
        max_new_tokens=limit,
        batch_size=batch_size,
        on_progress=_stage(on_progress, "generate"),
    )
    return [
        {"completion": made.text, "stop_reason": made.stop_reason, "n_new_tokens": made.n_new_tokens}
        for made in completions
    ]


@dataclass(frozen=True)
class _Side:
    """The pieces of one side's texts, and the features of all pieces in order."""

    pieces: Pieces
    features: NDArray[Any]

    @classmethod
    def of(cls, cutter: Cutter, pieces: Pieces, batch_size: int) -> _Side:
        return cls(pieces, cutter.featurizer.features(flat(pieces), batch_size))

    def of_examples(self, kept: Sequence[bool]) -> _Side:
        """Without the pieces of the examples that are not kept."""
        keeps = [keep for keep, group in zip(kept, self.pieces, strict=True) for _ in group]
        pieces: Pieces = [group if keep else [] for keep, group in zip(kept, self.pieces, strict=True)]
        return _Side(pieces, self.features[keeps])


def _pair(
    protocol: MauveProtocol, human: _Side, cutter: Cutter, texts: Sequence[str], draw: Draw, batch_size: int
) -> tuple[_Side, _Side] | None:
    """The sides of a draw, or None where too few texts are left, which is said."""
    what = f"the draw with seed {draw.seed} at temperature {draw.temperature:g}"
    try:
        pieces = cutter.pieces(texts, draw.seed)
        if protocol.is_paired:
            both = [bool(h and m) for h, m in zip(human.pieces, pieces, strict=True)]
            left = f"{what}, after pairs with a text of under {cutter.length} tokens were dropped,"
            mauve.check_number_of_texts(sum(both), left)
            human = human.of_examples(both)
            pieces = [group if keep else [] for keep, group in zip(both, pieces, strict=True)]
    except DataError as error:
        log.warning("No MAUVE for %s: %s", what, error)
        return None
    return human, _Side.of(cutter, pieces, batch_size)


@dataclass(frozen=True)
class _Clusterings:
    seeds: Sequence[int]
    count: int

    def add(self, rows: Sequence[Row], pair: tuple[_Side, _Side] | None) -> None:
        """The buckets of a draw under each clustering seed."""
        for seed in self.seeds:
            if pair is None:
                human_labels: list[list[int]] = [[] for _ in rows]
                model_labels = human_labels
            else:
                human, model = pair
                human_buckets, model_buckets = mauve.buckets(human.features, model.features, self.count, seed)
                if seed == self.seeds[0] and all(not row["mauve_human"] for row in rows):
                    p, q = (mauve.counts(side, self.count) for side in (human_buckets, model_buckets))
                    found = mauve.from_counts(p, q)
                    mauve.check_against_mauve_text(human.features, model.features, self.count, seed, found)
                human_labels = regrouped(human_buckets.tolist(), human.pieces)
                model_labels = regrouped(model_buckets.tolist(), model.pieces)
            for row, left, right in zip(rows, human_labels, model_labels, strict=True):
                row["mauve_human"].append(left)
                row["mauve_model"].append(right)

    def add_ceiling(self, rows: Sequence[Row], human: _Side, model: _Side) -> None:
        """Human against human texts, and at the same size human against the model's, under each clustering seed."""
        even = [number % 2 == 0 for number in range(len(rows))]
        odd = [not is_even for is_even in even]
        first = human.of_examples(even)
        others = {"mauve_ceiling": human.of_examples(odd), "mauve_half": model.of_examples(odd)}
        if min(len(first.features), *(len(side.features) for side in others.values())) < mauve.REFUSED_BELOW:
            return
        count = mauve.number_of_buckets(len(first.features))
        for row in rows:
            row.update({"mauve_half_buckets": count, "mauve_ceiling": [], "mauve_half": []})
        for seed in self.seeds:
            for name, second in others.items():
                left, right = mauve.buckets(first.features, second.features, count, seed)
                lefts, rights = regrouped(left.tolist(), first.pieces), regrouped(right.tolist(), second.pieces)
                for row, one, other in zip(rows, lefts, rights, strict=True):
                    row[name].append([*one, *other])  # of an even row its human bucket, of an odd one the other side's


def _stage(on_progress: OnProgress | None, name: str) -> Callable[[int, int, float], None] | None:
    return None if on_progress is None else lambda done, total, speed: on_progress(name, done, total, speed)
