from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer, PreTrainedModel

from lossbench.data.example import Example
from lossbench.errors import DataError
from lossbench.evaluation.choices import ChoiceScores, first_best, letters, score_choices, score_letters
from tests.evaluation import golden
from tests.models_at_hand import byte_tokenizer, tiny_llama
from tests.real_data import real_data

E2E = golden.load("lm_eval_e2e")
TASKS = ("mini_mathqa", "mini_hellaswag", "mini_openbookqa")


def examples_of(samples: list[dict]) -> list[Example]:
    found = []
    for sample in samples:
        prompts, choices = zip(*sample["arguments"], strict=True)
        assert len(set(prompts)) == 1
        without_delimiter = tuple(choice.removeprefix(" ") for choice in choices)
        answer = "ABCDE"[sample["target"]]
        found.append(Example(str(sample["doc_id"]), prompts[0], choices[sample["target"]], answer, without_delimiter))
    return found


@pytest.mark.parametrize("batch_size", ["1", "3"])
@pytest.mark.parametrize("task", TASKS)
def test_accuracies_are_those_of_the_harness(
    llama: PreTrainedModel, tokenizer: Any, task: str, batch_size: str
) -> None:
    run = E2E["batch_sizes"][batch_size]
    samples = run["samples"][task]
    examples = examples_of(samples)
    found = score_choices(llama, tokenizer, examples, max_length=E2E["max_length"], batch_size=int(batch_size))
    for sample, example, scores in zip(samples, examples, found, strict=True):
        assert scores.log_probs == pytest.approx([logprob for ((logprob, _),) in sample["resps"]], abs=1e-4)
        assert (scores.by_sum == example.gold_choice) == sample["acc"]
        assert (scores.by_character == example.gold_choice) == sample["acc_norm"]
    for metric, taken in (("acc", "by_sum"), ("acc_norm", "by_character")):
        right = [getattr(s, taken) == e.gold_choice for s, e in zip(found, examples, strict=True)]
        assert sum(right) / len(right) == run["results"][task][f"{metric},none"]


def test_scores_do_not_depend_on_the_batch(llama: PreTrainedModel, tokenizer: Any) -> None:
    examples = examples_of(E2E["batch_sizes"]["1"]["samples"]["mini_mathqa"])
    one, many = (score_choices(llama, tokenizer, examples, max_length=256, batch_size=size) for size in (1, 16))
    for a, b in zip(one, many, strict=True):
        assert a.log_probs == pytest.approx(b.log_probs, abs=1e-4)


def test_norms_divide_by_characters_and_by_utf8_bytes() -> None:
    scores = ChoiceScores(log_probs=(-6.0, -5.0, -8.4), characters=(6, 2, 12), bytes=(12, 2, 12))
    assert (scores.by_sum, scores.by_character, scores.by_byte) == (1, 2, 0)


@given(st.lists(st.integers(-3, 3), min_size=1))
def test_of_equal_scores_the_first_wins(scores: list[int]) -> None:
    assert first_best(scores) == np.argmax(scores)


def test_sizes_are_those_of_the_choice_without_its_delimiter(llama: PreTrainedModel, tokenizer: Any) -> None:
    (found,) = score_choices(llama, tokenizer, [Example("e", "Which?", "", "A", ("naïve", " b"))], max_length=64)
    assert found.characters == (5, 2)
    assert found.bytes == (6, 2)


def test_a_prompt_that_ends_in_a_space_gets_no_second_one(llama: PreTrainedModel, tokenizer: Any) -> None:
    choices = ("ice", "iron")
    spaced, bare = (
        score_choices(llama, tokenizer, [Example("e", f"Which?{space}", "", "A", choices)], max_length=64)[0]
        for space in (" ", "")
    )
    # The same tokens: at most the space itself, which all choices share, is scored in the one and not in the other.
    assert spaced.log_probs[0] - spaced.log_probs[1] == pytest.approx(bare.log_probs[0] - bare.log_probs[1], abs=1e-4)


def letter_example(count: int = 4) -> Example:
    listed = "\n".join(f"{letter}. thing {letter}" for letter in letters(count))
    things = tuple(f"thing {letter}" for letter in letters(count))
    return Example("question-1", f"Question: which?\n{listed}\nAnswer:", " B", "B", things)


def test_letters_are_compared_at_the_token_after_the_prompt(llama: PreTrainedModel, tokenizer: Any) -> None:
    example = letter_example()
    (found,) = score_letters(llama, tokenizer, [example], max_length=256)
    for letter, log_prob in zip("ABCD", found, strict=True):
        ids = tokenizer(f"{example.prompt} {letter}")["input_ids"]
        prompt = tokenizer(example.prompt)["input_ids"]
        assert ids[: len(prompt)] == prompt
        with torch.no_grad():
            log_p = llama(torch.tensor([ids])).logits[0].double().log_softmax(-1)
        expected = sum(log_p[place - 1, ids[place]].item() for place in range(len(prompt), len(ids)))
        assert log_prob == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("name", ["gpt2", "llama2", "falcon", "gpt-neox", "qwen3", "smollm2"])
@pytest.mark.parametrize("end", ["Answer:", "Answer: "])
def test_real_tokenizers_tell_letters_apart_by_one_token(
    llama: PreTrainedModel, name: str, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lossbench.evaluation import choices
    from lossbench.evaluation.perplexity import TargetScore

    seen = []

    def score(model: Any, tokens: Any, **settings: Any) -> list[TargetScore]:
        seen.extend(tokens)
        return [TargetScore(float(place), 1, 0.0, 0.0, 0) for place, _ in enumerate(tokens)]

    monkeypatch.setattr(choices, "target_nll", score)
    tokenizer = AutoTokenizer.from_pretrained(real_data(f"tokenizers/{name}"))
    example = letter_example(5)
    example = Example(example.id, example.prompt.removesuffix("Answer:") + end, "B", "B", example.choices)
    assert score_letters(llama, tokenizer, [example], max_length=512) == [[0.0, -1.0, -2.0, -3.0, -4.0]]
    assert len({tokens.input_ids[-1] for tokens in seen}) == 5


def test_letters_of_several_tokens_are_scored_as_whole_continuations() -> None:
    model, byte_tokens = tiny_llama(), byte_tokenizer()
    example = replace(letter_example(), prompt="Question: which?\nAnswer:")
    (found,) = score_letters(model, byte_tokens, [example], max_length=256)
    ids = byte_tokens(example.prompt)["input_ids"]
    for letter, log_prob in zip("ABCD", found, strict=True):
        whole = [*ids, *byte_tokens(f" {letter}", add_special_tokens=False)["input_ids"]]
        assert len(whole) == len(ids) + 2  # the space and the letter are tokens of their own
        with torch.no_grad():
            log_p = model(torch.tensor([whole])).logits[0].double().log_softmax(-1)
        expected = sum(log_p[place - 1, whole[place]].item() for place in (-2, -1))
        assert log_prob == pytest.approx(expected, abs=1e-4)


def test_letters_with_the_same_tokens_are_refused(llama: PreTrainedModel, tokenizer: Any) -> None:
    class Merging:
        """Writes the first two letters with one token."""

        def __getattr__(self, name: str) -> Any:
            return getattr(tokenizer, name)

        def __call__(self, texts: Any, **settings: Any) -> Any:
            found = tokenizer(texts, **settings)
            if isinstance(texts, list):
                found["input_ids"] = [[*ids[:-1], min(ids[-1], 35)] for ids in found["input_ids"]]
            return found

    with pytest.raises(DataError, match="question-1: this tokenizer gives two of A, B, C, D the same tokens"):
        score_letters(llama, Merging(), [letter_example()], max_length=256)


@pytest.mark.parametrize(
    ("given_choices", "sentence"),
    [((), "row-3 has 0 choices"), (("a",), "1 choices"), (("a", ""), "choice 1 is empty")],
)
def test_rows_without_choices_are_refused(
    llama: PreTrainedModel, tokenizer: Any, given_choices: tuple[str, ...], sentence: str
) -> None:
    with pytest.raises(DataError, match=sentence):
        score_choices(llama, tokenizer, [Example("row-3", "Which?", " a", "A", given_choices)], max_length=64)
