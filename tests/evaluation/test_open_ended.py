from __future__ import annotations

import statistics
from typing import Any

import pytest
from transformers import PreTrainedModel

from lossbench.data.example import Example
from lossbench.data.tokens import TokenizedExample, tokenize
from lossbench.data.word_problems import problems
from lossbench.errors import DataError
from lossbench.evaluation import mauve, open_ended
from lossbench.evaluation.evaluate import evaluate
from lossbench.evaluation.featurizer import Featurizer
from lossbench.evaluation.metrics import aggregate
from lossbench.evaluation.open_ended import MauveProtocol, mauve_metrics, mauve_rows

pytest.importorskip("faiss")
pytest.importorskip("mauve")


def texts(count: int) -> list[Example]:
    made = zip(range(count), problems("train", "easy", 0), strict=False)
    return [Example(f"text-{n}", problem.question[:24], f"{problem.question[24:]} {n}") for n, problem in made]


@pytest.fixture
def examples(tokenizer: Any) -> tuple[list[Example], list[TokenizedExample]]:
    found = texts(210)
    return found, tokenize(found, tokenizer, 256, ends_with_eos=False)


PROTOCOL = MauveProtocol(generation_seeds=(3, 4), clustering_seeds=(0, 1), tokens=12, buckets=10, max_new_tokens=10)


def test_rows_hold_samples_and_buckets_from_which_the_numbers_come(
    llama: PreTrainedModel, tokenizer: Any, examples: Any
) -> None:
    made, tokens = examples
    featurizer = Featurizer("small", llama, tokenizer)
    rows = mauve_rows(llama, tokenizer, made, tokens, featurizer, PROTOCOL, batch_size=128)
    assert {len(row["samples"]) for row in rows} == {2}
    assert {len(row["mauve_human"]) for row in rows} == {len(row["mauve_model"]) for row in rows} == {4}
    values = []
    for replicate in range(4):
        kept = [row for row in rows if row["mauve_human"][replicate] != open_ended.DROPPED]
        sides = ([row[side][replicate] for row in kept] for side in ("mauve_human", "mauve_model"))
        p, q = ([list(side).count(bucket) for bucket in range(10)] for side in sides)
        values.append(mauve.from_histograms(p, q))
    found = mauve_metrics(rows)
    name = "mauve_indicative[small]"
    assert found[name] == pytest.approx(sum(values) / 4)
    means = [(values[0] + values[1]) / 2, (values[2] + values[3]) / 2]
    assert found[f"{name}/sd_generation"] == pytest.approx(statistics.stdev(means))
    variances = [statistics.variance(values[:2]), statistics.variance(values[2:])]
    assert found[f"{name}/sd_clustering"] == pytest.approx((sum(variances) / 2) ** 0.5)
    assert found[f"{name}/n"] >= 200
    assert 0 < found[name] < 1


def test_the_evaluation_of_a_model_includes_mauve_on_request(
    llama: PreTrainedModel, tokenizer: Any, examples: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lossbench.evaluation import evaluate as module
    from tests.evaluation.test_evaluate import LANGUAGE

    monkeypatch.setattr(module, "load_featurizer", lambda path, pooling: Featurizer("small", llama, tokenizer, pooling))
    protocol = MauveProtocol(generation_seeds=(0,), clustering_seeds=(0,), tokens=12, max_new_tokens=10)
    found = evaluate(
        llama, tokenizer, LANGUAGE, *examples, split="test", metrics=["mauve"], mauve=protocol, batch_size=128
    )  # fmt: skip
    assert "test/mauve_indicative[small]" in found.metrics
    assert "test/mauve_indicative[small]/sd_generation" not in found.metrics
    assert aggregate(found.rows, "test") == found.metrics
    assert found.rows[0]["mauve_buckets"] == 21  # a tenth of the examples


def row(human: list[int], model: list[int]) -> dict[str, Any]:
    return {
        "mauve_human": human,
        "mauve_model": model,
        "mauve_name": "gpt2-large",
        "mauve_buckets": 2,
        "mauve_clusterings": 1,
    }


def test_only_a_thousand_pairs_drop_the_label_indicative() -> None:
    pairs = [row([n % 2], [n % 2]) for n in range(1000)]
    assert mauve_metrics(pairs)["mauve[gpt2-large]"] == 1.0
    pairs[0] = row([open_ended.DROPPED], [open_ended.DROPPED])
    found = mauve_metrics(pairs)
    assert "mauve[gpt2-large]" not in found
    assert found["mauve_indicative[gpt2-large]/n"] == 999


def test_too_few_texts_are_refused_before_and_after_dropping(
    llama: PreTrainedModel, tokenizer: Any, examples: Any
) -> None:
    made, tokens = examples
    featurizer = Featurizer("small", llama, tokenizer)
    with pytest.raises(DataError, match="this evaluation has 199"):
        mauve_rows(llama, tokenizer, made[:199], tokens[:199], featurizer, PROTOCOL)
    too_long = MauveProtocol(generation_seeds=(0,), tokens=250, max_new_tokens=2)
    with pytest.raises(DataError, match="generation seed 0, after pairs with a text of under 250 tokens were dropped"):
        mauve_rows(llama, tokenizer, made, tokens, featurizer, too_long, batch_size=128)
