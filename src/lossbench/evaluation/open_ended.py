"""MAUVE of a model's continuations, with the spread that its two kinds of chance cause.

    human text: prompt + target          model text: the same prompt + what the model samples after it

Both are tokenised by the featurizer and cut to one length, since MAUVE sees a difference in length as one in quality;
a pair in which one text is shorter is dropped. The length is what nine in ten of the human texts reach, so that it
depends on the data alone. Sampling is unbiased and repeated with several generation seeds, k-means with several
clustering seeds. The buckets of each text are kept in its row: from them every value can be computed again.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from lossbench.data.example import Example
from lossbench.data.tokens import TokenizedExample
from lossbench.errors import DataError
from lossbench.evaluation import mauve
from lossbench.evaluation.featurizer import Featurizer, Pooling
from lossbench.evaluation.generate import generate

if TYPE_CHECKING:
    from transformers import PreTrainedModel

DROPPED = -1
REACHED_BY = 0.9

OnProgress = Callable[[str, int, int, float], None]


@dataclass(frozen=True)
class MauveProtocol:
    """What else can move the number; all of it belongs into the fingerprint of an evaluation."""

    featurizer: str = "lossbench:tiny"
    pooling: Pooling = "last"
    generation_seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    clustering_seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    buckets: int | None = None  # null: a tenth of the examples
    tokens: int | None = None  # length of both texts; null: what nine in ten of the human texts reach
    max_new_tokens: int | None = None  # null: the tokens of the longest target
    temperature: float = 1.0


def mauve_rows(
    model: PreTrainedModel,
    tokenizer: Any,
    examples: Sequence[Example],
    tokenized: Sequence[TokenizedExample],
    featurizer: Featurizer,
    protocol: MauveProtocol,
    *,
    batch_size: int = 8,
    on_progress: OnProgress | None = None,
) -> list[dict[str, Any]]:
    """Columns for each example: `samples` (one text a generation seed), `mauve_human` and `mauve_model` (the buckets of
    the human and of the model's text, generation seeds by clustering seeds, -1 where the pair was dropped), and the
    `mauve_name`, `mauve_tokens` and `mauve_buckets` that they stand under.

    Raises `DataError` for fewer than 200 pairs. The first replicate is computed by mauve-text as well, and must agree.
    """
    mauve.check_number_of_texts(len(examples), "this evaluation")
    human = featurizer.encode([example.prompt + example.target for example in examples])
    length = protocol.tokens or sorted(map(len, human))[math.floor(len(human) * (1 - REACHED_BY))]
    count = protocol.buckets or mauve.number_of_buckets(len(examples))
    human_features = featurizer.features([ids[:length] for ids in human], batch_size)
    new_tokens = protocol.max_new_tokens or max(len(row.input_ids) - row.target_start for row in tokenized)

    columns: list[dict[str, list[Any]]] = [{"samples": [], "mauve_human": [], "mauve_model": []} for _ in examples]
    for replicate, seed in enumerate(protocol.generation_seeds):

        def progress(done: int, total: int, speed: float, replicate: int = replicate) -> None:
            if on_progress is not None:
                on_progress(f"sample {replicate + 1}", done, total, speed)

        completions = generate(
            model,
            tokenizer,
            [row.input_ids[: row.target_start] for row in tokenized],
            max_new_tokens=new_tokens,
            batch_size=batch_size,
            sample_seed=seed,
            temperature=protocol.temperature,
            on_progress=progress,
        )
        texts = [example.prompt + made.text for example, made in zip(examples, completions, strict=True)]
        sampled = featurizer.encode(texts)
        kept = [n for n, pair in enumerate(zip(human, sampled, strict=True)) if min(map(len, pair)) >= length]
        what = f"generation seed {seed}, after pairs with a text of under {length} tokens were dropped,"
        mauve.check_number_of_texts(len(kept), what)
        p = human_features[kept]
        q = featurizer.features([sampled[number][:length] for number in kept], batch_size)
        for column, completion in zip(columns, completions, strict=True):
            column["samples"].append(completion.text)
        for place, clustering_seed in enumerate(protocol.clustering_seeds):
            human_labels, model_labels = mauve.buckets(p, q, count, clustering_seed)
            if replicate == place == 0:
                found = mauve.from_counts(mauve.counts(human_labels, count), mauve.counts(model_labels, count))
                mauve.check_against_mauve_text(p, q, count, clustering_seed, found)
            for name, labels in (("mauve_human", human_labels), ("mauve_model", model_labels)):
                spread = np.full(len(examples), DROPPED)
                spread[kept] = labels
                for column, label in zip(columns, spread.tolist(), strict=True):
                    column[name].append(label)
    shared = {
        "mauve_name": featurizer.name,
        "mauve_tokens": length,
        "mauve_buckets": count,
        "mauve_clusterings": len(protocol.clustering_seeds),
    }
    return [{**column, **shared} for column in columns]


def mauve_metrics(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """The metrics of rows that `mauve_rows` made, named after the featurizer: with NAME for `mauve[tiny]`, or
    `mauve_indicative[tiny]` where a generation seed has fewer than 1,000 pairs,

    NAME: mean over generation seeds x clustering seeds; NAME/star, NAME/frontier_integral: likewise;
    NAME/sd_generation: standard deviation over generation seeds of the mean over clusterings;
    NAME/sd_clustering: root of the mean variance over clustering seeds; NAME/n: the fewest pairs of a generation seed.
    """
    first = rows[0]
    count, clusterings = first["mauve_buckets"], first["mauve_clusterings"]
    human, model = (np.array([list(row[name]) for row in rows]) for name in ("mauve_human", "mauve_model"))
    if human.shape != model.shape or human.shape[1] % clusterings:
        raise DataError(f"The columns mauve_human {human.shape} and mauve_model {model.shape} do not belong together.")
    scores = []
    for replicate in range(human.shape[1]):
        p, q = (side[:, replicate][side[:, replicate] != DROPPED] for side in (human, model))
        scores.append(mauve.from_counts(mauve.counts(p, count), mauve.counts(q, count)))
    fewest = int((human != DROPPED).sum(axis=0).min())
    name = f"mauve[{first['mauve_name']}]" if fewest >= mauve.INDICATIVE_BELOW else (
        f"mauve_indicative[{first['mauve_name']}]"
    )  # fmt: skip
    values = np.array([score.mauve for score in scores]).reshape(-1, clusterings)
    found = {
        name: float(values.mean()),
        f"{name}/star": math.fsum(score.mauve_star for score in scores) / len(scores),
        f"{name}/frontier_integral": math.fsum(score.frontier_integral for score in scores) / len(scores),
        f"{name}/n": float(fewest),
    }
    if len(values) > 1:
        found[f"{name}/sd_generation"] = statistics.stdev(values.mean(axis=1).tolist())
    if clusterings > 1:
        found[f"{name}/sd_clustering"] = float(np.sqrt(values.var(axis=1, ddof=1).mean()))
    return found
