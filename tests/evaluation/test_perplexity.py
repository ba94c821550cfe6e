from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, PreTrainedModel

from lossbench.data.tokens import TokenizedExample
from lossbench.errors import ConfigError, DataError, ModelError
from lossbench.evaluation import perplexity
from tests.evaluation import golden
from tests.evaluation.float64_llama import Float64Llama

GOLDEN = golden.load("ppl")
WINDOWS = [
    pytest.param(
        case["ids"], window, id=f"{case['n']} tokens, {window['max_length']}/{window['stride']}, {window['bos']}"
    )
    for case in GOLDEN["cases"]
    for window in case["strided"]
]
IS_SOUND = [not (w["bos"] == "each_window" and w["stride"] == w["max_length"]) for _, w in (p.values for p in WINDOWS)]
SOUND = [window for window, is_sound in zip(WINDOWS, IS_SOUND, strict=True) if is_sound]
UNSOUND = [window for window, is_sound in zip(WINDOWS, IS_SOUND, strict=True) if not is_sound]


@pytest.fixture(scope="module")
def exact() -> Any:
    return Float64Llama(golden.FOLDER / "tiny_llama")


@pytest.fixture(scope="module")
def single() -> PreTrainedModel:
    return AutoModelForCausalLM.from_pretrained(golden.FOLDER / "tiny_llama", dtype=torch.float32)


def batch_of_the_golden() -> list[TokenizedExample]:
    batch = GOLDEN["batch"]
    rows = zip(batch["sequences"], batch["first_scored_index"], strict=True)
    return [TokenizedExample(str(number), ids, first) for number, (ids, first) in enumerate(rows)]


@pytest.mark.parametrize(("ids", "window"), SOUND)
def test_windows_agree_with_the_reference_in_float64(exact: Any, ids: list[int], window: dict) -> None:
    found = perplexity.rolling(exact, ids, window["max_length"], window["stride"], bos=window["bos"])
    assert found.n_scored == window["n_scored"]
    assert found.nll_sum == pytest.approx(window["nll_sum"], abs=1e-9, rel=0)
    assert found.ppl == pytest.approx(window["ppl"], rel=1e-10)


@pytest.mark.parametrize(("ids", "window"), SOUND)
def test_windows_agree_with_the_reference_in_float32(single: PreTrainedModel, ids: list[int], window: dict) -> None:
    found = perplexity.rolling(single, ids, window["max_length"], window["stride"], bos=window["bos"])
    assert found.n_scored == window["n_scored"]
    assert found.nll_sum == pytest.approx(window["nll_sum"], abs=1e-4 * found.n_scored, rel=0)


def token_nll(model: Any, ids: list[int]) -> torch.Tensor:
    """(n - 1,) NLL of every token but the first, in one pass."""
    ids_row = torch.tensor([ids])
    with torch.no_grad():
        log_p = model(input_ids=ids_row, attention_mask=torch.ones_like(ids_row)).logits[0].log_softmax(-1)
    return -log_p[:-1].gather(-1, ids_row[0, 1:, None]).squeeze(-1)


@pytest.mark.parametrize(("ids", "window"), UNSOUND)
def test_bos_before_each_disjoint_window_scores_every_token_once(exact: Any, ids: list[int], window: dict) -> None:
    """The golden file is wrong in these eight cases, where a stride of max_length leaves a gap behind bodies of
    max_length - 1: its loop reads the gap's token at index -1, that is from the logits after the end of the window that
    follows it (asserted below), and may lose the last token. Here bodies follow one another without a gap."""
    length = window["max_length"]
    with torch.no_grad():
        total, seen = 0.0, 0
        for begin in range(0, len(ids), length):
            end = min(begin + length - 1, len(ids))
            row = torch.tensor([[1, *ids[begin:end]]])
            log_p = exact(input_ids=row, attention_mask=torch.ones_like(row)).logits[0].log_softmax(-1)
            total -= sum(log_p[place - begin, ids[place]].item() for place in range(seen, end))
            seen = end
    assert total == pytest.approx(window["nll_sum"], abs=1e-9, rel=0)

    bodies = [ids[begin : begin + length - 1] for begin in range(0, len(ids), length - 1)]
    expected = sum(token_nll(exact, [1, *body]).sum().item() for body in bodies)
    found = perplexity.rolling(exact, ids, length, length, bos="each_window")
    assert found.n_scored == len(ids)
    assert found.nll_sum == pytest.approx(expected, abs=1e-9, rel=0)


@pytest.mark.parametrize("batch_size", [1, 2, 3, 8])
def test_targets_agree_with_the_reference_at_any_batch_size(
    exact: Any, single: PreTrainedModel, batch_size: int
) -> None:
    batch = GOLDEN["batch"]
    for model, tolerance in ((exact, 1e-9), (single, 1e-4)):
        scores = perplexity.target_nll(model, batch_of_the_golden(), batch_size=batch_size)
        assert [score.n_tokens for score in scores] == batch["per_sequence_n"]
        for score, expected in zip(scores, batch["per_sequence_nll"], strict=True):
            assert score.nll_sum == pytest.approx(expected, abs=tolerance * score.n_tokens, rel=0)


def test_perplexity_weighs_tokens_not_sequences_or_batches(exact: Any) -> None:
    batch = GOLDEN["batch"]
    scores = perplexity.target_nll(exact, batch_of_the_golden())
    nll_sum, n_tokens = sum(score.nll_sum for score in scores), sum(score.n_tokens for score in scores)
    found = perplexity.ppl(nll_sum, n_tokens)
    assert found == pytest.approx(batch["token_weighted_ppl"], rel=1e-10)
    for wrong in ("mean_of_sequence_means_ppl", "mean_of_batch_means_ppl_bs2", "mean_of_per_sequence_ppl"):
        assert found != pytest.approx(batch[wrong], rel=0.01)
    bits = perplexity.bits_per_byte(nll_sum, sum(batch["pretend_bytes"]))
    assert bits == pytest.approx(batch["bits_per_byte"], rel=1e-10)


def test_likelihoods_of_choices_agree_with_the_harness(llama: PreTrainedModel, tokenizer: Any) -> None:
    samples = golden.load("lm_eval_e2e")["batch_sizes"]["3"]["samples"]
    examples, expected = [], []
    for sample in samples["mini_mathqa"] + samples["mini_hellaswag"] + samples["mini_openbookqa"]:
        for (prompt, choice), ((log_likelihood, _),) in zip(sample["arguments"], sample["resps"], strict=True):
            context = tokenizer(prompt, add_special_tokens=False)["input_ids"]
            whole = tokenizer(prompt + choice, add_special_tokens=False)["input_ids"]
            examples.append(TokenizedExample(choice, whole, len(context)))
            expected.append(-log_likelihood)
    found = [score.nll_sum for score in perplexity.target_nll(llama, examples)]
    assert len(found) == 66
    assert found == pytest.approx(expected, abs=1e-4)


def test_entropy_right_tokens_and_last_nll_are_those_of_the_scored_rows(model: PreTrainedModel) -> None:
    ids, start = [5, 17, 300, 4, 4, 9, 0], 3
    with torch.no_grad():
        log_p = model(torch.tensor([ids])).logits[0, start - 1 : -1].double().log_softmax(-1)
    (score,) = perplexity.target_nll(model, [TokenizedExample("a", ids, start)])
    targets = torch.tensor(ids[start:])
    assert score.entropy_sum == pytest.approx(-(log_p.exp() * log_p).sum().item(), rel=1e-5)
    assert score.n_correct == (log_p.argmax(-1) == targets).sum().item()
    assert score.last_nll == pytest.approx(-log_p[-1, ids[-1]].item(), rel=1e-5)


def test_a_token_that_is_the_most_probable_counts_as_right(llama: PreTrainedModel) -> None:
    with torch.no_grad():
        best = llama(torch.tensor([[5, 17]])).logits[0, -1].argmax().item()
    scores = perplexity.target_nll(
        llama, [TokenizedExample("right", [5, 17, best], 2), TokenizedExample("wrong", [5, 17, (best + 1) % 400], 2)]
    )
    assert [score.n_correct for score in scores] == [1, 0]


def test_the_vocabulary_is_scored_in_chunks_of_rows(llama: PreTrainedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    examples = [TokenizedExample(str(n), list(range(1, 30 + n)), n) for n in range(1, 6)]
    whole = perplexity.target_nll(llama, examples)
    monkeypatch.setattr(perplexity, "CHUNK_ELEMENTS", 3 * 400)
    assert perplexity.target_nll(llama, examples) == whole


def test_a_text_without_bos_loses_its_first_token_only(llama: PreTrainedModel) -> None:
    ids = [7, 9, 11, 13]
    (score,) = perplexity.target_nll(llama, [TokenizedExample("a", ids, 0)])
    assert score.n_tokens == 3
    assert score.nll_sum == pytest.approx(token_nll(llama, ids).sum().item(), rel=1e-6)


def test_rolling_does_not_depend_on_how_many_windows_go_together(single: PreTrainedModel) -> None:
    ids = GOLDEN["cases"][3]["ids"]
    one, many = (perplexity.rolling(single, ids, 16, 4, bos=1, batch_size=size) for size in (1, 32))
    assert one.nll_sum == pytest.approx(many.nll_sum, rel=1e-6)


def test_an_overflowing_perplexity_is_infinite() -> None:
    assert perplexity.ppl(1e6, 1) == math.inf


def test_bad_windows_are_refused_with_a_sentence(single: PreTrainedModel) -> None:
    with pytest.raises(ConfigError, match="at most 128, the model's context window, got max_length=129"):
        perplexity.rolling(single, [5, 6, 7], 129, 1)
    with pytest.raises(ConfigError, match="stride must lie between 1 and max_length=8, got 9"):
        perplexity.rolling(single, [5, 6, 7], 8, 9)
    with pytest.raises(DataError, match="already begins with BOS"):
        perplexity.rolling(single, [1, 6, 7], 8, 8, bos=1)
    with pytest.raises(DataError, match="nothing to score"):
        perplexity.rolling(single, [5], 8, 8)


def test_bos_in_each_window_needs_a_model_that_has_one(llama: PreTrainedModel) -> None:
    llama.config.bos_token_id = None
    with pytest.raises(ModelError, match="names no bos_token_id"):
        perplexity.rolling(llama, [5, 6, 7], 8, 8, bos="each_window")


def test_examples_that_cannot_be_scored_are_refused_by_name(gpt2: PreTrainedModel) -> None:
    with pytest.raises(DataError, match="row-7: there is no token to score"):
        perplexity.target_nll(gpt2, [TokenizedExample("row-7", [1, 2, 3], 3)])
    with pytest.raises(DataError, match="row-8 has 65 tokens, more than the model's context window of 64"):
        perplexity.target_nll(gpt2, [TokenizedExample("row-8", [1] * 65, 3)])
