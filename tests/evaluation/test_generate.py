from __future__ import annotations

import copy
import logging
import warnings
from collections import Counter
from typing import Any

import pytest
import torch
from scipy import stats
from transformers import GenerationConfig, PreTrainedModel

from lossbench.errors import ConfigError, DataError
from lossbench.evaluation.generate import generate
from tests.evaluation import golden

PROMPTS = [
    [5, 17, 300, 4],
    [9],
    [33, 34, 35, 36, 37, 38, 39, 40, 41],
    [7, 7],
    [250, 3, 90],
    [11, 12, 13, 14, 15, 16, 17],
]


def greedy_by_hand(model: PreTrainedModel, prompt: list[int], count: int) -> list[int]:
    """Token by token, without cache, padding or mask."""
    ids = list(prompt)
    with torch.no_grad():
        while len(ids) < len(prompt) + count and ids[-1] != 0:
            ids.append(model(torch.tensor([ids])).logits[0, -1].argmax().item())
    return ids[len(prompt) :]


def test_greedy_text_is_the_same_at_any_batch_size_and_as_by_hand(model: PreTrainedModel, tokenizer: Any) -> None:
    expected = [greedy_by_hand(model, prompt, 20) for prompt in PROMPTS]
    for batch_size in (1, 2, 8):
        found = generate(model, tokenizer, PROMPTS, max_new_tokens=20, batch_size=batch_size)
        assert [completion.token_ids for completion in found] == expected
    assert len({tuple(ids) for ids in expected}) == len(PROMPTS)


def test_text_agrees_with_the_harness(llama: PreTrainedModel, tokenizer: Any) -> None:
    e2e = golden.load("lm_eval_e2e")
    samples = e2e["batch_sizes"]["3"]["samples"]["mini_gsm8k"]
    prompts = [tokenizer(s["arguments"][0][0], add_special_tokens=False)["input_ids"] for s in samples]
    stops = samples[0]["arguments"][0][1]["until"]
    limit = e2e["meta"]["gsm8k_max_gen_toks"]
    found = generate(llama, tokenizer, prompts, max_new_tokens=limit, stop_strings=stops, batch_size=3)
    assert [completion.text for completion in found] == [s["resps"][0][0] for s in samples]


def test_the_padding_token_changes_nothing(model: PreTrainedModel, tokenizer: Any) -> None:
    without = generate(model, tokenizer, PROMPTS, max_new_tokens=12, batch_size=6)
    padded = copy.deepcopy(tokenizer)
    padded.pad_token = padded.convert_ids_to_tokens(17)
    assert tokenizer.pad_token is None
    assert generate(model, padded, PROMPTS, max_new_tokens=12, batch_size=6) == without


@pytest.mark.parametrize("ending", [[50], 50])
def test_a_row_ends_with_the_model_s_own_end_token(llama: PreTrainedModel, tokenizer: Any, ending: Any) -> None:
    before = generate(llama, tokenizer, PROMPTS, max_new_tokens=20)
    end = before[0].token_ids[6]
    place = before[0].token_ids.index(end)
    llama.generation_config.eos_token_id = [0, end] if isinstance(ending, list) else end
    found = generate(llama, tokenizer, PROMPTS, max_new_tokens=20)
    assert found[0].token_ids == before[0].token_ids[: place + 1]
    assert found[0].stop_reason == "eos"
    assert before[0].stop_reason == "length"
    for old, new in zip(before, found, strict=True):
        assert new.token_ids == (
            old.token_ids[: old.token_ids.index(end) + 1] if end in old.token_ids else old.token_ids
        )


@pytest.mark.parametrize("batch_size", [1, 6])
def test_a_stop_string_cuts_its_row_and_no_other(llama: PreTrainedModel, tokenizer: Any, batch_size: int) -> None:
    prompts = [tokenizer(text)["input_ids"] for text in ("How many pens?", "The answer is", "A shop sells", "Boxes:")]
    before = generate(llama, tokenizer, prompts, max_new_tokens=24)
    text = before[2].text
    middle = next(p for p in range(8, len(text)) if text[p : p + 5].isascii() and not text[p : p + 5].isspace())
    stop = text[middle : middle + 5]
    found = generate(
        llama, tokenizer, prompts, max_new_tokens=24, stop_strings=["never said", stop], batch_size=batch_size
    )
    for old, new in zip(before, found, strict=True):
        assert new.text == old.text.split(stop)[0]
        if stop in old.text:
            assert new.stop_reason == "stop_string"
            assert stop in tokenizer.decode(new.token_ids)
            assert stop not in tokenizer.decode(new.token_ids[:-1])
        else:
            assert new == old
    assert found[2].stop_reason == "stop_string"
    assert any(new.stop_reason != "stop_string" for new in found)


def test_a_stop_string_in_the_prompt_stops_nothing(llama: PreTrainedModel, tokenizer: Any) -> None:
    prompts = [tokenizer("Question: how many? Question:")["input_ids"]]
    without = generate(llama, tokenizer, prompts, max_new_tokens=10)
    assert generate(llama, tokenizer, prompts, max_new_tokens=10, stop_strings=["Question:", "é"]) == without


def test_a_stop_that_is_a_special_token_ends_the_row(llama: PreTrainedModel, tokenizer: Any) -> None:
    before = generate(llama, tokenizer, PROMPTS, max_new_tokens=20)[0]
    special = copy.deepcopy(tokenizer)
    name = special.convert_ids_to_tokens(before.token_ids[5])
    special.add_special_tokens({"pad_token": name})
    found = generate(llama, special, PROMPTS, max_new_tokens=20, stop_strings=[name])[0]
    assert found.token_ids == before.token_ids[: before.token_ids.index(before.token_ids[5]) + 1]
    assert found.stop_reason == "stop_string"


def test_samples_follow_the_whole_distribution(gpt2: PreTrainedModel, tokenizer: Any) -> None:
    """No token is cut off (transformers' default keeps 50) and none is favoured: chi-square over all 400 tokens."""
    with torch.no_grad():
        gpt2.lm_head.weight.mul_(0.3)  # also the tied embedding: a flat distribution, with many tokens to lose
        for temperature in (1.0, 1.5):
            expected = (gpt2(torch.tensor([[5, 17]])).logits[0, -1].double() / temperature).softmax(-1)
            drawn = generate(
                gpt2,
                tokenizer,
                [[5, 17]] * 6000,
                max_new_tokens=1,
                batch_size=2000,
                sample_seed=3,
                temperature=temperature,
            )
            counts = Counter(completion.token_ids[0] for completion in drawn)
            observed = torch.tensor([float(counts[token]) for token in range(400)], dtype=torch.float64)
            assert len(counts) > 100
            frequent = expected * 6000 >= 5
            seen = [*observed[frequent].tolist(), observed[~frequent].sum().item()]
            hoped = [*(expected[frequent] * 6000).tolist(), (expected[~frequent].sum() * 6000).item()]
            assert stats.chisquare(seen, hoped).pvalue > 0.001


def test_a_sample_belongs_to_its_example_and_seed(model: PreTrainedModel, tokenizer: Any) -> None:
    def draw(seed: int, prompts: list[list[int]], batch_size: int) -> list[list[int]]:
        found = generate(model, tokenizer, prompts, max_new_tokens=12, batch_size=batch_size, sample_seed=seed)
        return [completion.token_ids for completion in found]

    alone = draw(1, PROMPTS, 1)
    assert draw(1, PROMPTS, 6) == alone
    assert draw(1, PROMPTS[:2], 2) == alone[:2]
    assert draw(2, PROMPTS, 6) != alone
    same_prompt = draw(1, [PROMPTS[0]] * 4, 4)
    assert len({tuple(ids) for ids in same_prompt}) == 4


def test_the_global_generator_is_left_untouched(llama: PreTrainedModel, tokenizer: Any) -> None:
    state = torch.get_rng_state()
    generate(llama, tokenizer, PROMPTS, max_new_tokens=4, sample_seed=1)
    assert torch.equal(torch.get_rng_state(), state)


def test_the_model_s_own_generation_settings_have_no_say(llama: PreTrainedModel, tokenizer: Any) -> None:
    plain = generate(llama, tokenizer, PROMPTS, max_new_tokens=12)
    own = GenerationConfig(
        do_sample=True, top_k=1, top_p=0.1, temperature=9.0, repetition_penalty=5.0, no_repeat_ngram_size=1,
        max_length=6, min_new_tokens=9, suppress_tokens=plain[0].token_ids[:2], eos_token_id=0,
    )  # fmt: skip
    llama.generation_config = own
    assert generate(llama, tokenizer, PROMPTS, max_new_tokens=12) == plain
    assert llama.generation_config is own


def test_dropout_is_off_and_every_mode_is_given_back(gpt2: PreTrainedModel, tokenizer: Any) -> None:
    plain = generate(gpt2, tokenizer, PROMPTS, max_new_tokens=12)
    gpt2.train()
    frozen = gpt2.transformer.h[1]
    frozen.eval()
    modes = [module.training for module in gpt2.modules()]
    assert generate(gpt2, tokenizer, PROMPTS, max_new_tokens=12) == plain
    assert [module.training for module in gpt2.modules()] == modes
    assert not frozen.training


def test_the_end_of_the_window_ends_a_row_and_no_other(gpt2: PreTrainedModel, tokenizer: Any) -> None:
    prompts = [[n % 399 + 1 for n in range(61)], [5, 6, 7], [n % 300 + 2 for n in range(60)]]
    expected = [greedy_by_hand(gpt2, prompt, room) for prompt, room in zip(prompts, (3, 20, 4), strict=True)]
    found = generate(gpt2, tokenizer, prompts, max_new_tokens=20, batch_size=3)
    assert [completion.token_ids for completion in found] == expected
    assert found[0].stop_reason == "length"


def test_prompts_without_room_or_tokens_are_refused(gpt2: PreTrainedModel, tokenizer: Any) -> None:
    with pytest.raises(DataError, match=r"Prompt 1 has 64 tokens.*context window of 64"):
        generate(gpt2, tokenizer, [[1], [1] * 64], max_new_tokens=5)
    with pytest.raises(DataError, match="Prompt 0 has no token"):
        generate(gpt2, tokenizer, [[]], max_new_tokens=5)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_new_tokens": 0}, "at least 1, got 0 and 8"),
        ({"max_new_tokens": 5, "temperature": 0.7}, "changes nothing in greedy decoding"),
        ({"max_new_tokens": 5, "temperature": 0.0, "sample_seed": 1}, "must be above 0, got 0.0"),
        ({"max_new_tokens": 5, "stop_strings": [""]}, "empty stop string"),
    ],
)
def test_impossible_settings_are_refused(gpt2: PreTrainedModel, tokenizer: Any, settings: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        generate(gpt2, tokenizer, PROMPTS, **settings)


def test_nothing_is_warned_about(model: PreTrainedModel, tokenizer: Any) -> None:
    records: list[logging.LogRecord] = []
    listener = logging.Handler()
    listener.emit = records.append  # type: ignore[method-assign]
    logger = logging.getLogger("transformers")
    logger.addHandler(listener)
    model.generation_config.temperature = 0.3  # such leftovers are what transformers warns about
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for seed in (None, 1):
                generate(model, tokenizer, [*PROMPTS, [5, 0]], max_new_tokens=4, stop_strings=["x"], sample_seed=seed)
    finally:
        logger.removeHandler(listener)
    assert [record.getMessage() for record in records] == []


def test_adapters_write_what_the_merged_model_writes(llama: PreTrainedModel, tokenizer: Any) -> None:
    from peft import LoraConfig, get_peft_model

    plain = generate(llama, tokenizer, PROMPTS, max_new_tokens=12)
    torch.manual_seed(0)
    adapted = get_peft_model(llama, LoraConfig(r=4, target_modules=["q_proj", "v_proj"], init_lora_weights=False))
    found = generate(adapted, tokenizer, PROMPTS, max_new_tokens=12)
    assert found != plain
    merged = adapted.merge_and_unload()
    assert generate(merged, tokenizer, PROMPTS, max_new_tokens=12) == found


def test_progress_ends_with_all_prompts_and_their_speed(llama: PreTrainedModel, tokenizer: Any) -> None:
    seen: list[tuple[int, int, float]] = []
    generate(llama, tokenizer, PROMPTS, max_new_tokens=4, batch_size=4, on_progress=lambda *news: seen.append(news))
    assert [(done, total) for done, total, _ in seen] == [(4, 6), (6, 6)]
    assert all(speed > 0 for _, _, speed in seen)


def test_no_prompts_give_no_completions(llama: PreTrainedModel, tokenizer: Any) -> None:
    assert generate(llama, tokenizer, [], max_new_tokens=4) == []
