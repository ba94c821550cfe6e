from __future__ import annotations

import logging
import statistics
from typing import Any

import pytest
from transformers import PreTrainedModel

from lossbench import app
from lossbench.config import EvaluationConfig
from lossbench.data import task as tasks
from lossbench.data.example import Example
from lossbench.data.tokens import TokenizedExample, tokenize
from lossbench.data.word_problems import problems
from lossbench.errors import DataError, LossbenchError
from lossbench.evaluation import mauve
from lossbench.evaluation.evaluate import evaluate
from lossbench.evaluation.featurizer import Featurizer
from lossbench.evaluation.mauve_metrics import mauve_metrics
from lossbench.evaluation.mauve_protocol import MauveProtocol
from lossbench.evaluation.metrics import aggregate
from lossbench.evaluation.open_ended import Draw, Material, material, mauve_rows
from lossbench.evaluation.stored import read_rows, write_rows

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
QUICK = MauveProtocol(generation_seeds=(0,), clustering_seeds=(0,), tokens=12, max_new_tokens=6, ceiling=False)


@pytest.fixture
def small_featurizer(llama: PreTrainedModel, tokenizer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from lossbench.evaluation import evaluate as module

    monkeypatch.setattr(module, "load_featurizer", lambda path, pooling: Featurizer("small", llama, tokenizer, pooling))


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
        p, q = ([bucket for row in rows for bucket in row[side][replicate]] for side in ("mauve_human", "mauve_model"))
        assert len(p) == len(q) >= 200
        values.append(mauve.from_histograms(*([side.count(bucket) for bucket in range(10)] for side in (p, q))))
    found = mauve_metrics(rows)
    name = "mauve_indicative[small]"
    assert found[name] == pytest.approx(sum(values) / 4)
    means = [(values[0] + values[1]) / 2, (values[2] + values[3]) / 2]
    assert found[f"{name}/sd_generation"] == pytest.approx(statistics.stdev(means))
    variances = [statistics.variance(values[:2]), statistics.variance(values[2:])]
    assert found[f"{name}/sd_clustering"] == pytest.approx((sum(variances) / 2) ** 0.5)
    assert found[f"{name}/n"] >= 200
    assert 0 <= found[f"{name}/dropped"] < 0.1
    assert f"{name}/ceiling" not in found  # half of 210 texts are too few
    assert 0 < found[name] < 1


def test_human_texts_against_human_texts_are_the_ceiling(llama: PreTrainedModel, tokenizer: Any) -> None:
    made = texts(420)
    tokens = tokenize(made, tokenizer, 256, ends_with_eos=False)
    featurizer = Featurizer("small", llama, tokenizer)
    protocol = MauveProtocol(generation_seeds=(0,), clustering_seeds=(0, 1), tokens=24, max_new_tokens=30)
    rows = mauve_rows(llama, tokenizer, made, tokens, featurizer, protocol, batch_size=256)
    found = mauve_metrics(rows)
    name = "mauve_indicative[small]"
    assert found[f"{name}/ceiling"] > found[f"{name}/half"]  # random weights write nothing like it
    assert {row["mauve_half_buckets"] for row in rows} == {21}  # a tenth of the half


def test_a_model_whose_texts_are_too_short_loses_mauve_and_nothing_else(
    llama: PreTrainedModel, tokenizer: Any, examples: Any, caplog: pytest.LogCaptureFixture
) -> None:
    made, tokens = examples
    featurizer = Featurizer("small", llama, tokenizer)
    too_long = MauveProtocol(generation_seeds=(0,), clustering_seeds=(0,), tokens=250, max_new_tokens=2)
    with caplog.at_level(logging.WARNING):
        rows = mauve_rows(llama, tokenizer, made, tokens, featurizer, too_long, batch_size=128)
    assert "after pairs with a text of under 250 tokens were dropped, has 0" in caplog.text
    assert mauve_metrics(rows) == {"mauve_indicative[small]/n": 0.0, "mauve_indicative[small]/dropped": 1.0}
    with pytest.raises(DataError, match="this evaluation has 199"):
        mauve_rows(llama, tokenizer, made[:199], tokens[:199], featurizer, PROTOCOL)


def test_texts_are_compared_at_one_length_and_in_pairs(llama: PreTrainedModel, tokenizer: Any, examples: Any) -> None:
    made, tokens = examples
    seen: list[list[list[int]]] = []

    class Watched(Featurizer):
        def features(self, token_ids: Any, batch_size: int = 8) -> Any:
            seen.append([list(ids) for ids in token_ids])
            return super().features(token_ids, batch_size)

    mauve_rows(llama, tokenizer, made, tokens, Watched("small", llama, tokenizer), QUICK, batch_size=256)
    assert {len(ids) for side in seen for ids in side} == {12}


def test_the_evaluation_of_a_model_includes_mauve_on_request(
    llama: PreTrainedModel, tokenizer: Any, examples: Any, small_featurizer: None
) -> None:
    from tests.evaluation.test_evaluate import LANGUAGE

    found = evaluate(
        llama, tokenizer, LANGUAGE, *examples, split="test", metrics=["mauve"], material=Material(QUICK),
        batch_size=128,
    )  # fmt: skip
    assert "test/mauve_indicative[small]" in found.metrics
    assert "test/mauve_indicative[small]/sd_generation" not in found.metrics
    assert {"test/sampled/rep_4", "test/sampled/zipf"} <= set(found.metrics)
    assert found.rows[0]["mauve_buckets"] == 21  # a tenth of the examples


def test_continuations_are_rows_of_their_own_and_all_numbers_come_back_from_the_file(
    llama: PreTrainedModel, tokenizer: Any, small_featurizer: None, tmp_path: Any
) -> None:
    from tests.evaluation.test_evaluate import LANGUAGE

    pages = [Example(f"page-{n}", "", f"The {n}th page of text.") for n in range(3)]
    tokens = tokenize(pages, tokenizer, 256, ends_with_eos=False)
    protocol = MauveProtocol(
        generation_seeds=(0,), clustering_seeds=(0,), tokens=12, max_new_tokens=8, tune=(0.5, 1.0), ceiling=False
    )
    made = texts(420)
    found = evaluate(
        llama, tokenizer, LANGUAGE, pages, tokens, split="test", metrics=["perplexity", "mauve"],
        material=Material(protocol, made[:210], made[210:]), batch_size=256,
    )  # fmt: skip
    assert found.metrics["data/n_test"] == 3
    assert found.metrics["data/n_test_continuations"] == 210
    name = "test/mauve_indicative[small]"
    tried = {t: found.metrics[f"{name}/tuning_at_{t}"] for t in ("0.5", "1")}
    best = max(tried, key=tried.__getitem__)
    assert found.metrics[f"{name}/tuned_temperature"] == float(best)
    if best == "1":
        assert found.metrics[f"{name}/tuned"] == found.metrics[name]
    assert f"{name}/tuned" in found.metrics
    assert {"test/nll", "test/text/rep_4", "test/sampled/rep_4", "test/stops/length"} <= set(found.metrics)
    views = [row["view"] for row in found.rows]
    assert views[:3] == [None] * 3
    assert views[3:213] == ["continuation"] * 210
    assert {row["split"] for row in found.rows if row["view"] == "tuning"} == {"validation"}
    write_rows(tmp_path / "examples.parquet", found.rows)
    assert aggregate(read_rows(tmp_path / "examples.parquet"), "test") == found.metrics


def test_a_temperature_that_was_chosen_is_evaluated_with_all_generation_seeds(
    llama: PreTrainedModel, tokenizer: Any, small_featurizer: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lossbench.evaluation import evaluate as module
    from tests.evaluation.test_evaluate import LANGUAGE

    drawn: list[list[Draw]] = []

    def rows_at(*args: Any, draws: Any = None, **settings: Any) -> list[dict[str, Any]]:
        protocol: MauveProtocol = args[5]
        draws = draws or [Draw(seed, protocol.temperature) for seed in protocol.generation_seeds]
        drawn.append(list(draws))
        label = [[0] if draw.temperature == 0.8 else [1] for draw in draws]
        shared = {"mauve_name": "small", "mauve_buckets": 2, "mauve_clusterings": 1, "samples": ["a"] * len(draws)}
        return [
            {**shared, "mauve_human": [[0]] * len(draws), "mauve_model": label,
             "mauve_temperatures": [draw.temperature for draw in draws]}
            for _ in args[2]
        ]  # fmt: skip

    monkeypatch.setattr(module, "mauve_rows", rows_at)
    made = texts(200)
    protocol = MauveProtocol(generation_seeds=(0, 1), clustering_seeds=(0,), tune=(0.8, 1.2), max_new_tokens=2)
    tokens = tokenize(made[:2], tokenizer, 256)
    found = evaluate(
        llama, tokenizer, LANGUAGE, made[:2], tokens, split="test", metrics=["mauve"],
        material=Material(protocol, made, made), batch_size=256,
    )  # fmt: skip
    assert drawn == [[Draw(0, 1.0), Draw(1, 1.0)], [Draw(0, 0.8), Draw(0, 1.2)], [Draw(0, 0.8), Draw(1, 0.8)]]
    name = "test/mauve_indicative[small]"
    assert found.metrics[f"{name}/tuned"] == 1.0
    assert found.metrics[name] < 0.01


def settings(**changes: Any) -> EvaluationConfig:
    composed = app.compose("evaluation=mauve", *[f"evaluation.{key}={value}" for key, value in changes.items()])
    return composed.evaluation


class Pages:
    """A task with continuations, as far as MAUVE needs it."""

    def __init__(self, count: int) -> None:
        self.count = count

    def continuations(self, split: str) -> list[Example]:
        return texts(self.count if split == "test" else 150)


def test_what_mauve_compares_is_known_before_training() -> None:
    task: Any = Pages(230)
    found = material(task, settings(limit=210), [])
    assert found is not None
    assert found.evaluated is not None
    assert len(found.evaluated) == 210
    assert found.tuning is None
    assert found.protocol == MauveProtocol()
    assert material(task, app.compose().evaluation, []) is None
    with pytest.raises(DataError, match="the test split of Pages has 199"):
        material(Pages(199), settings(), [])  # type: ignore[arg-type]
    with pytest.raises(DataError, match="the validation split of Pages, where temperatures are tried, has 150"):
        material(task, settings(**{"mauve.tune": "[0.8,1.0]"}), [])
    with pytest.raises(LossbenchError, match=r"no model 'tinny'.*tiny"):
        material(task, settings(**{"mauve.featurizer": "lossbench:tinny"}), [])


def test_a_task_without_continuations_is_compared_on_its_examples() -> None:
    config = app.compose("evaluation=mauve")
    task = tasks.create(config.dataset)
    examples = tasks.load(task, "test", None)
    found = material(task, config.evaluation, examples)
    assert found is not None
    assert found.evaluated is None
    with pytest.raises(DataError, match="the test split of Arithmetic has 100"):
        material(task, config.evaluation, examples[:100])
