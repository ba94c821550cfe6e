from __future__ import annotations

import inspect
import io
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd
import pytest
import torch
from transformers import PreTrainedModel

from lossbench.data.example import Example
from lossbench.data.tokens import TokenizedExample, tokenize
from lossbench.errors import ConfigError, DataError
from lossbench.evaluation import answers
from lossbench.evaluation.evaluate import evaluate
from lossbench.evaluation.generate import Completion, generate
from lossbench.evaluation.metrics import aggregate, pass_at_k
from lossbench.evaluation.perplexity import target_nll
from tests.evaluation import golden


@dataclass(frozen=True)
class SomeTask:
    metrics: tuple[str, ...] = ("exact_match", "perplexity")
    answer_rule: str = "lossbench"
    stop_strings: tuple[str, ...] = ("Question:",)
    max_new_tokens: int = 12
    ends_with_eos: bool = True


EXAMPLES = [
    Example("sum-0", "Question: 3 boxes of 4 pens?\nAnswer:", " <<3*4=12>> #### 12", "<<3*4=12>> #### 12"),
    Example("sum-1", "Question: half of 2,400 kg?\nAnswer:", " #### 1,200", "1,200"),
    Example("sum-2", "Question: 5 less than 2?\nAnswer:", " #### -3", "-3"),
]
LANGUAGE = SomeTask(metrics=("perplexity",), ends_with_eos=False)


def test_rows_hold_what_was_written_and_how_likely_the_targets_are(llama: PreTrainedModel, tokenizer: Any) -> None:
    tokens = tokenize(EXAMPLES, tokenizer, 256)
    found = evaluate(llama, tokenizer, SomeTask(), EXAMPLES, tokens, split="test", batch_size=2)
    prompts = [row.input_ids[: row.target_start] for row in tokens]
    completions = generate(llama, tokenizer, prompts, max_new_tokens=12, stop_strings=("Question:",))
    scores = target_nll(llama, tokens)
    assert [row["id"] for row in found.rows] == ["sum-0", "sum-1", "sum-2"]
    assert [row["completion"] for row in found.rows] == [completion.text for completion in completions]
    assert [row["gold_value"] for row in found.rows] == ["12", "1200", "-3"]
    assert [row["prompt_tokens"] for row in found.rows] == [len(prompt) for prompt in prompts]
    assert [row["nll_sum"] for row in found.rows] == pytest.approx([score.nll_sum for score in scores], rel=1e-6)
    expected = sum(score.nll_sum for score in scores) / sum(score.n_tokens for score in scores)
    assert found.metrics["test/nll"] == pytest.approx(expected, rel=1e-6)
    assert found.metrics["data/n_test"] == 3


def test_a_model_that_says_the_target_is_right_under_every_rule(
    llama: PreTrainedModel, tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lossbench.evaluation import evaluate as module

    said = ["<<3*4=12>> #### 12", "It is 1,200 kg", "#### -4"]
    monkeypatch.setattr(
        module,
        "generate",
        lambda *args, **settings: [Completion([5, 0], text, "eos") for text in said],
    )
    tokens = tokenize(EXAMPLES, tokenizer, 256)
    found = evaluate(llama, tokenizer, SomeTask(), EXAMPLES, tokens, split="validation", metrics=["exact_match"])
    names = ("em", "em_strict", "em_flexible", "em_seed", "error_class", "prediction")
    assert [tuple(row[name] for name in names) for row in found.rows] == [
        (True, True, True, True, "ok", "12"),
        (True, False, True, False, "ok", "1200"),
        (False, False, False, False, "wrong_value", "-4"),
    ]
    assert found.metrics["val/em"] == pytest.approx(2 / 3)
    assert found.metrics["val/error/wrong_value"] == pytest.approx(1 / 3)
    assert "val/nll" not in found.metrics


def test_every_metric_can_be_computed_again_from_the_stored_rows(llama: PreTrainedModel, tokenizer: Any) -> None:
    tokens = tokenize(EXAMPLES, tokenizer, 256)
    found = evaluate(llama, tokenizer, SomeTask(), EXAMPLES, tokens, split="test")
    file = io.BytesIO()
    pd.DataFrame(found.rows).to_parquet(file)
    rows = pd.read_parquet(file).to_dict("records")
    assert aggregate(rows, "test") == found.metrics
    for row in rows:
        gold = row["gold"] if "####" in row["gold"] else f"#### {row['gold']}"
        assert row["em"] == answers.exact_match(row["completion"], gold)
        assert row["em_strict"] == answers.exact_match(row["completion"], gold, "gsm8k_strict")
        assert row["error_class"] == answers.error_class(row["completion"], gold, row["stop_reason"])


def test_language_modelling_has_likelihoods_only(llama: PreTrainedModel, tokenizer: Any) -> None:
    texts = [Example("page-0", "", "The first text."), Example("page-1", "", "Another.")]
    tokens = tokenize(texts, tokenizer, 256, ends_with_eos=False)
    found = evaluate(llama, tokenizer, LANGUAGE, texts, tokens, split="test")
    assert {"test/nll", "test/ppl"} <= set(found.metrics)
    assert not {"test/em", "test/eos_nll"} & set(found.metrics)
    assert "completion" not in found.rows[0]


def test_letters_are_judged_as_letters(llama: PreTrainedModel, tokenizer: Any) -> None:
    question = [Example("choice-0", "Question: which?\nA. ice\nB. iron\nAnswer:", " A", "A")]
    tokens = tokenize(question, tokenizer, 256)
    task = SomeTask(answer_rule="letter", max_new_tokens=4)
    (row,) = evaluate(llama, tokenizer, task, question, tokens, split="test").rows
    assert row["error_class"] in {"ok", "no_letter", "wrong_value", "empty"}
    assert row["gold_value"] == "A"
    assert "em_strict" not in row


def test_progress_names_the_stage(llama: PreTrainedModel, tokenizer: Any) -> None:
    seen: list[tuple[str, int, int]] = []
    tokens = tokenize(EXAMPLES, tokenizer, 256)
    evaluate(
        llama, tokenizer, SomeTask(), EXAMPLES, tokens, split="test", batch_size=2,
        on_progress=lambda stage, done, total, speed: seen.append((stage, done, total)),
    )  # fmt: skip
    assert seen == [("generate", 2, 3), ("generate", 3, 3), ("score", 2, 3), ("score", 3, 3)]


@pytest.mark.parametrize("answer", ["#### twelve", "", None])
def test_a_gold_answer_that_cannot_be_read_is_an_error_not_a_zero(
    llama: PreTrainedModel, tokenizer: Any, answer: str | None
) -> None:
    examples = [EXAMPLES[0], replace(EXAMPLES[1], answer=answer)]
    with pytest.raises(DataError, match="sum-1: no answer can be read"):
        evaluate(llama, tokenizer, SomeTask(), examples, tokenize(examples, tokenizer, 256), split="test")


def test_tokens_of_other_examples_are_refused(llama: PreTrainedModel, tokenizer: Any) -> None:
    tokens = tokenize(EXAMPLES, tokenizer, 256)
    with pytest.raises(DataError, match="do not belong together"):
        evaluate(llama, tokenizer, SomeTask(), EXAMPLES, tokens[::-1], split="test")


def test_an_unknown_metric_names_the_nearest(llama: PreTrainedModel, tokenizer: Any) -> None:
    tokens = tokenize(EXAMPLES, tokenizer, 256)
    with pytest.raises(ConfigError, match=r"'perplexty' is no metric.*perplexity"):
        evaluate(llama, tokenizer, SomeTask(), EXAMPLES, tokens, split="test", metrics=["perplexty"])


CHOICES = [
    Example("text-0", "Which melts?", " ice", "B", ("stone", "ice", "iron")),
    Example("text-1", "Which burns?", " wood", "A", ("wood", "water", "a very long stone")),
]


def test_choices_are_scored_as_texts_where_the_prompt_does_not_list_them(
    llama: PreTrainedModel, tokenizer: Any
) -> None:
    task = SomeTask(metrics=("choices", "perplexity"), answer_rule="letter")
    tokens = tokenize(CHOICES, tokenizer, 256)
    found = evaluate(llama, tokenizer, task, CHOICES, tokens, split="test", batch_size=4)
    for row, example in zip(found.rows, CHOICES, strict=True):
        scores = row["choice_logprobs"]
        assert row["acc"] == (max(scores) == scores[example.gold_choice])  # type: ignore[index]
        per_byte = [score / size for score, size in zip(scores, row["choice_bytes"], strict=True)]
        assert row["acc_bytes"] == (max(per_byte) == per_byte[row["gold_choice"]])
        assert row["choice_chars"] == [len(choice) for choice in example.choices]
    assert {"test/acc", "test/acc_norm", "test/acc_bytes", "test/choices/ece"} <= set(found.metrics)
    assert not {"test/em", "test/letter_logprob"} & set(found.metrics)


def test_letters_are_scored_where_the_prompt_lists_the_choices(llama: PreTrainedModel, tokenizer: Any) -> None:
    asked = [Example("l-0", "Which?\nA. stone\nB. ice\nAnswer:", " B", "B", ("stone", "ice"))]
    task = SomeTask(metrics=("exact_match", "choices"), answer_rule="letter", max_new_tokens=4)
    found = evaluate(llama, tokenizer, task, asked, tokenize(asked, tokenizer, 256), split="test")
    (row,) = found.rows
    assert row["letter"] == "AB"[row["letter_logprobs"].index(max(row["letter_logprobs"]))]
    assert row["letter_logprob"] == (row["letter"] == "B")
    assert {"test/em", "test/letter_logprob", "test/choices/brier"} <= set(found.metrics)
    assert not {"test/acc", "test/acc_norm"} & set(found.metrics)  # another task: never in the same column


@pytest.mark.parametrize("answer", ["C", None, "ice"])
def test_a_right_choice_that_is_none_of_the_choices_is_refused(
    llama: PreTrainedModel, tokenizer: Any, answer: str | None
) -> None:
    broken = [Example("row-5", "Which?", " ice", answer, ("stone", "ice"))]
    task = SomeTask(metrics=("choices",), answer_rule="letter")
    with pytest.raises(DataError, match="row-5: the answer"):
        evaluate(llama, tokenizer, task, broken, tokenize(broken, tokenizer, 256), split="test")


def test_confidence_is_the_likelihood_of_what_was_generated(llama: PreTrainedModel, tokenizer: Any) -> None:
    tokens = tokenize(EXAMPLES, tokenizer, 256)
    wanted = ["exact_match", "confidence"]
    found = evaluate(llama, tokenizer, SomeTask(), EXAMPLES, tokens, split="test", metrics=wanted)
    prompts = [row.input_ids[: row.target_start] for row in tokens]
    completions = generate(llama, tokenizer, prompts, max_new_tokens=12, stop_strings=("Question:",))
    for row, prompt, completion in zip(found.rows, prompts, completions, strict=True):
        said = TokenizedExample("said", [*prompt, *completion.token_ids], len(prompt))
        (score,) = target_nll(llama, [said])
        assert row["sum_logprob"] == pytest.approx(-score.nll_sum, rel=1e-5)
        assert row["mean_logprob"] == pytest.approx(-score.nll_sum / completion.n_new_tokens, rel=1e-5)
        assert score.n_correct == score.n_tokens  # greedy: every token was the most probable one
    assert aggregate(found.rows, "test") == found.metrics
    with pytest.raises(ConfigError, match="ask for exact_match too"):
        evaluate(llama, tokenizer, SomeTask(), EXAMPLES, tokens, split="test", metrics=["confidence"])


def test_sampled_answers_give_pass_at_k_and_the_majority(
    llama: PreTrainedModel, tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lossbench.evaluation import evaluate as module

    said = {None: ["#### 0"] * 3, 0: ["#### 12", "#### 5", "no"], 1: ["#### 12", "#### 1,200", "none"],
            2: ["#### 3", "#### 5", "nothing"], 3: ["#### 9", "#### 1200", "at all"]}  # fmt: skip
    asked: list[tuple[int | None, float]] = []

    def generate_as_told(*args: Any, sample_seed: int | None, temperature: float, **settings: Any) -> list[Completion]:
        asked.append((sample_seed, temperature))
        return [Completion([5, 0], text, "eos") for text in said[sample_seed]]

    monkeypatch.setattr(module, "generate", generate_as_told)
    found = evaluate(
        llama, tokenizer, SomeTask(), EXAMPLES, tokenize(EXAMPLES, tokenizer, 256), split="test",
        metrics=["exact_match"], samples=4, sample_temperature=0.8,
    )  # fmt: skip
    assert asked == [(None, 1.0), (0, 0.8), (1, 0.8), (2, 0.8), (3, 0.8)]
    assert [row["sampled_right"] for row in found.rows] == [2, 2, 0]
    assert [row["sampled_majority"] for row in found.rows] == ["12", "5", None]  # of equals the first one given
    assert [row["sampled_majority_em"] for row in found.rows] == [True, False, False]
    assert found.metrics["test/em"] == 0
    assert found.metrics["test/pass@1"] == pytest.approx((0.5 + 0.5 + 0) / 3)
    assert found.metrics["test/pass@2"] == pytest.approx((5 / 6 + 5 / 6 + 0) / 3)
    assert found.metrics["test/pass@4"] == pytest.approx(2 / 3)
    assert found.metrics["test/maj@4"] == pytest.approx(1 / 3)
    assert aggregate(found.rows, "test") == found.metrics


@pytest.mark.parametrize("case", golden.load("report_stats")["pass_at_k"])
def test_pass_at_k_is_the_unbiased_estimate(case: dict[str, Any]) -> None:
    assert pass_at_k(case["n"], case["c"], case["k"]) == pytest.approx(case["value"], abs=1e-12)


def test_pass_at_k_needs_k_answers() -> None:
    with pytest.raises(DataError, match="pass@5 cannot be estimated from 1 right ones of 4"):
        pass_at_k(4, 1, 5)


def test_a_gold_answer_that_stops_the_papers_code_is_counted(
    llama: PreTrainedModel, tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lossbench.evaluation import evaluate as module

    said = ["#### 12", "#### 1,200", "#### -3"]
    monkeypatch.setattr(module, "generate", lambda *a, **s: [Completion([5, 0], text, "eos") for text in said])
    tokens = tokenize(EXAMPLES, tokenizer, 256)
    found = evaluate(llama, tokenizer, SomeTask(), EXAMPLES, tokens, split="test", metrics=["exact_match"])
    names = ("em", "em_seed", "seed_crash", "pred_marked", "pred_last")
    assert [tuple(row[name] for name in names) for row in found.rows] == [
        (True, True, False, "12", "12"),
        (True, False, True, "1200", "1200"),
        (True, False, False, "-3", "-3"),
    ]
    assert found.metrics["test/seed_crash"] == pytest.approx(1 / 3)


def test_answers_that_are_cut_off_are_said(
    llama: PreTrainedModel, tokenizer: Any, caplog: pytest.LogCaptureFixture
) -> None:
    tokens = tokenize(EXAMPLES, tokenizer, 256)
    evaluate(llama, tokenizer, SomeTask(max_new_tokens=2), EXAMPLES, tokens, split="test", metrics=["exact_match"])
    assert "3 of 3 answers were cut off by their limit: a larger evaluation.max_new_tokens" in caplog.text


def test_a_truncated_prompt_is_marked_counted_and_the_cause_of_a_wrong_answer(
    llama: PreTrainedModel, tokenizer: Any
) -> None:
    tokens = tokenize(EXAMPLES, tokenizer, 20)
    assert [row.truncated for row in tokens] == [True, True, True]
    found = evaluate(llama, tokenizer, SomeTask(), EXAMPLES, tokens, split="test", metrics=["exact_match"])
    assert found.metrics["test/truncated"] == 1
    assert found.metrics["test/error/truncated_prompt"] == 1


def test_out_of_memory_halves_the_batch_and_changes_no_text(
    llama: PreTrainedModel, tokenizer: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tokens = tokenize(EXAMPLES, tokenizer, 256)
    wanted = evaluate(llama, tokenizer, SomeTask(), EXAMPLES, tokens, split="test", batch_size=3)
    forward = llama.forward

    def small_device(input_ids: Any = None, **inputs: Any) -> Any:
        if input_ids is not None and len(input_ids) > 1:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return forward(input_ids=input_ids, **inputs)

    small_device.__signature__ = inspect.signature(forward)  # type: ignore[attr-defined]
    monkeypatch.setattr(llama, "forward", small_device)
    found = evaluate(llama, tokenizer, SomeTask(), EXAMPLES, tokens, split="test", batch_size=3)
    assert [row["completion"] for row in found.rows] == [row["completion"] for row in wanted.rows]
    assert found.metrics["test/nll"] == pytest.approx(wanted.metrics["test/nll"], rel=1e-6)
    assert "Out of device memory with 3 examples at once: going on with 1." in caplog.text


def test_letters_are_those_of_the_row_s_own_options(
    llama: PreTrainedModel, tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lossbench.evaluation import evaluate as module

    monkeypatch.setattr(module, "generate", lambda *a, **s: [Completion([5, 0], text, "eos") for text in ("G", "E")])
    seven = Example("many", "Which?\nAnswer:", " G", "G", tuple("ice iron wood wool wax wine wind".split()))
    two = Example("few", "Which?\nAnswer:", " A", "A", ("ice", "iron"))
    task = SomeTask(answer_rule="letter")
    tokens = tokenize([seven, two], tokenizer, 256)
    found = evaluate(llama, tokenizer, task, [seven, two], tokens, split="test", metrics=["exact_match"])
    assert [(row["em"], row["prediction"], row["error_class"]) for row in found.rows] == [
        (True, "G", "ok"),
        (False, None, "no_letter"),
    ]
