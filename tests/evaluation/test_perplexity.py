from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel

from lossbench.data.example import Example
from lossbench.data.tokens import TokenizedExample, tokenize
from lossbench.errors import ConfigError, DataError, ModelError
from lossbench.evaluation import perplexity
from tests.evaluation import golden
from tests.evaluation.float64_llama import Float64Llama
from tests.real_data import real_data

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
    """In these eight cases (stride = max_length) the golden file is not what it defines, "every token is scored".

    Its windows begin max_length apart while their bodies hold max_length - 1 tokens, so one token between two windows
    is in neither. Its loop counts from the token's place in the window that follows, -1, and so reads the last row of
    that window's logits: a prediction made after the token's own future. In the two cases of 64 tokens the token that
    no window follows is lost (63 scored, `unscored_positions` empty). The first half of this test reproduces all eight
    sums in this way, to 1e-9; the second holds ours, whose bodies follow one another without a gap, to the definition.
    """
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


ROLLING = [
    pytest.param(case["ids"], window, id=f"{case['n']} tokens, {window['max_length']}")
    for case in GOLDEN["cases"]
    for window in case["lm_eval_rolling"]
]


@pytest.mark.parametrize(("ids", "window"), ROLLING)
def test_rolling_windows_of_the_harness(exact: Any, single: PreTrainedModel, ids: list[int], window: dict) -> None:
    for model, tolerance in ((exact, 1e-9), (single, 1e-4 * len(ids))):
        found = perplexity.lm_eval_rolling(model, ids, window["max_length"], window["prefix"])
        assert found.n_scored == window["n_scored"] == len(ids)
        assert found.nll_sum == pytest.approx(window["nll_sum"], abs=tolerance, rel=0)


def test_the_token_before_a_piece_takes_no_room_of_the_window(single: PreTrainedModel) -> None:
    ids = [5, 6, 7, 8] * 64  # 256 tokens in two pieces of the model's whole window of 128
    found = perplexity.lm_eval_rolling(single, ids, 128, 2)
    expected = sum(token_nll(single, part).sum().item() for part in ([2, *ids[:128]], ids[127:]))
    assert found.n_scored == 256
    assert found.nll_sum == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("batch_size", ["1", "3"])
def test_perplexities_of_pages_agree_with_the_harness(llama: PreTrainedModel, tokenizer: Any, batch_size: str) -> None:
    run, max_length = golden.load("lm_eval_e2e")["batch_sizes"][batch_size], golden.load("lm_eval_e2e")["max_length"]
    total, n_words, n_bytes = 0.0, 0, 0
    for sample in run["samples"]["mini_wikitext"]:
        ((page,),) = sample["arguments"]
        ids = tokenizer(page, add_special_tokens=False)["input_ids"]
        found = perplexity.lm_eval_rolling(llama, ids, max_length, tokenizer.bos_token_id, batch_size=int(batch_size))
        assert [-found.nll_sum] == pytest.approx(sample["resps"][0], abs=1e-4 * found.n_scored)
        # The harness divides by the words and bytes of the raw page, of which the golden holds the numbers alone.
        total, n_words = total + found.nll_sum, n_words + sample["word_perplexity"][1]
        n_bytes += sample["byte_perplexity"][1]
    expected = run["results"]["mini_wikitext"]
    assert perplexity.word_ppl(total, n_words) == pytest.approx(expected["word_perplexity,none"], rel=1e-4)
    assert perplexity.byte_ppl(total, n_bytes) == pytest.approx(expected["byte_perplexity,none"], rel=1e-5)
    assert perplexity.bits_per_byte(total, n_bytes) == pytest.approx(expected["bits_per_byte,none"], rel=1e-6)


def test_real_rows_have_the_perplexity_of_an_independent_loop_in_float64() -> None:
    folder = real_data("models/stories260K")
    lines = real_data("datasets/wikitext-2/test.txt").read_text(encoding="utf-8").splitlines()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    loop = Float64Llama(folder)
    rows = [line for line in lines if line.strip()][:40]
    examples = tokenize([Example(str(n), "", row[:400]) for n, row in enumerate(rows)], tokenizer, 512)
    scores = perplexity.target_nll(model, examples, batch_size=16)
    found = perplexity.ppl(sum(score.nll_sum for score in scores), sum(score.n_tokens for score in scores))
    expected = [token_nll(loop, example.input_ids).tolist() for example in examples]
    n_tokens = sum(map(len, expected))
    assert sum(score.n_tokens for score in scores) == n_tokens > 5000
    assert found == pytest.approx(perplexity.ppl(sum(map(sum, expected)), n_tokens), rel=1e-4)
    for score, row in zip(scores, expected, strict=True):
        assert score.nll_sum == pytest.approx(sum(row), abs=1e-4 * len(row))

    ids = examples[0].input_ids[1:] + examples[1].input_ids[1:] + examples[2].input_ids[1:]
    windows = [perplexity.rolling(one, ids, 128, 64, bos=tokenizer.bos_token_id) for one in (model, loop)]
    assert windows[0].ppl == pytest.approx(windows[1].ppl, rel=1e-4)


def test_words_are_counted_as_the_harness_splits_them() -> None:
    assert perplexity.lm_eval_words("one two\n\nthree") == 3
    assert perplexity.lm_eval_words(" = Page = \n") == 5  # an empty word before the first space and after the last


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


def test_entropies_agree_with_the_golden_in_nats() -> None:
    case = golden.load("text_stats")["token_entropy"]
    logits = torch.tensor(case["logits"], dtype=torch.float64)
    found = perplexity._token_statistics(logits, logits.argmax(-1))
    assert found[:, 1].tolist() == pytest.approx(case["entropy_nats"], abs=1e-9)
    assert (-found[:, 0]).exp().tolist() == pytest.approx(case["max_prob"], abs=1e-9)


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


def test_probability_margin_and_rank_are_those_of_the_scored_rows(llama: PreTrainedModel) -> None:
    ids = [5, 17, 200, 33, 301]
    (found,) = perplexity.target_nll(llama, [TokenizedExample("text", ids, 2)])
    with torch.no_grad():
        log_p = llama(torch.tensor([ids])).logits[0, 1:4].double().log_softmax(-1)
    two = log_p.topk(2, dim=-1).values
    assert found.max_prob_sum == pytest.approx(two[:, 0].exp().sum().item(), rel=1e-5)
    assert found.min_margin == pytest.approx((two[:, 0] - two[:, 1]).min().item(), abs=1e-5)
    ranks = [int((row > row[target]).sum()) + 1 for row, target in zip(log_p, ids[2:], strict=True)]
    assert found.rank_sum == sum(ranks)
    assert found.n_sure == int((two[:, 0].exp() > 0.99).sum())
