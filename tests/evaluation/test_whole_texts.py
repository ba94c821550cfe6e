from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel

from lossbench import app
from lossbench.data import task as tasks
from lossbench.data.example import Example
from lossbench.data.tokens import tokenize
from lossbench.errors import ConfigError
from lossbench.evaluation import perplexity
from lossbench.evaluation.evaluate import evaluate
from lossbench.evaluation.metrics import aggregate
from lossbench.evaluation.stored import read_rows, write_rows
from lossbench.evaluation.whole_texts import WholeTexts, Windows, whole_text_metrics, whole_text_rows, whole_texts
from tests.evaluation.float64_llama import Float64Llama
from tests.models_at_hand import BOS, byte_tokenizer, tiny_llama
from tests.real_data import real_data

TEXTS = [Example("page-0", "", "A first page, of é and more words. " * 3), Example("page-1", "", "Another one.")]


@pytest.mark.parametrize(("mode", "unscored"), [("first", 0), ("each_window", 0), ("none", 1)])
def test_totals_are_those_of_rolling_windows_over_each_text(mode: str, unscored: int) -> None:
    model, tokenizer = tiny_llama(), byte_tokenizer()
    model.config.bos_token_id = BOS
    asked = WholeTexts(TEXTS, Windows(32, 16, mode))  # type: ignore[arg-type]
    rows = whole_text_rows(model, tokenizer, asked, "test")
    bos: Any = {"first": BOS, "each_window": "each_window", "none": None}[mode]
    ids = [list(text.target.encode()) for text in TEXTS]
    assert [row["n_bytes"] for row in rows] == [len(text) - unscored for text in ids]
    name = f"rolling[bos={mode}]"
    tokens = [tokenizer(text.target, add_special_tokens=False)["input_ids"] for text in TEXTS]
    scores = [perplexity.rolling(model, text, 32, 16, bos=bos) for text in tokens]
    total = sum(score.nll_sum for score in scores), sum(score.n_scored for score in scores)
    found = whole_text_metrics(rows)
    assert found[f"{name}/nll"] == pytest.approx(total[0] / total[1])
    assert found[f"{name}/ppl"] == pytest.approx(math.exp(total[0] / total[1]))
    assert found[f"{name}/bits_per_byte"] == pytest.approx(total[0] / math.log(2) / sum(row["n_bytes"] for row in rows))


def test_disjoint_windows_without_bos_have_no_bits_per_byte() -> None:
    rows = whole_text_rows(tiny_llama(), byte_tokenizer(), WholeTexts(TEXTS, Windows(32, 32, "none")), "test")
    found = whole_text_metrics(rows)  # each window's first token is unscored, so the bytes are not those of the NLL
    assert "rolling[bos=none]/ppl" in found
    assert "rolling[bos=none]/bits_per_byte" not in found


def test_they_stand_beside_the_other_rows_and_come_back_from_the_file(tmp_path: Path) -> None:
    from tests.evaluation.test_evaluate import LANGUAGE

    model, tokenizer = tiny_llama(), byte_tokenizer()
    tokens = tokenize(TEXTS, tokenizer, 256, ends_with_eos=False)
    found = evaluate(
        model, tokenizer, LANGUAGE, TEXTS, tokens, split="test", whole_texts=WholeTexts(TEXTS, Windows())
    )  # fmt: skip
    assert found.metrics["data/n_test"] == 2
    assert found.metrics["test/rolling[bos=first]/n_tokens"] == sum(len(text.target.encode()) for text in TEXTS)
    write_rows(tmp_path / "examples.parquet", found.rows)
    assert aggregate(read_rows(tmp_path / "examples.parquet"), "test") == found.metrics


def test_lines_of_a_running_text_are_put_together_and_other_tasks_refused(tmp_path: Path) -> None:
    (tmp_path / "test.txt").write_text("One line.\n\nAnother one.\n")
    config = app.compose("dataset=wikitext2", f"dataset.path={tmp_path}", "evaluation.rolling=true")
    found = whole_texts(tasks.create(config.dataset), config.evaluation)
    assert found is not None
    assert [text.target for text in found.texts] == ["One line.\n\nAnother one.\n"]
    assert whole_texts(tasks.create(config.dataset), app.compose().evaluation) is None
    with pytest.raises(ConfigError, match=r"evaluation\.rolling=true .* Arithmetic has prompts and targets"):
        whole_texts(tasks.create(app.compose().dataset), config.evaluation)


def test_real_wikitext_has_the_perplexity_of_an_independent_loop_in_float64() -> None:
    folder = real_data("models/stories260K")
    lines = real_data("datasets/wikitext-2/test.txt").read_text(encoding="utf-8").splitlines(keepends=True)[:12]
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(folder)
    text = Example("lines", "", "".join(lines))
    (row,) = whole_text_rows(model, tokenizer, WholeTexts([text], Windows(128, 64)), "test", batch_size=4)
    ids = [tokenizer.bos_token_id, *tokenizer(text.target, add_special_tokens=False)["input_ids"]]
    reference, expected, seen, begin = Float64Llama(folder), 0.0, 1, 0
    while seen < len(ids):
        window = ids[begin : begin + 128]
        with torch.no_grad():
            log_p = reference(torch.tensor([window]), torch.ones(1, len(window))).logits[0].log_softmax(-1)
        for place in range(seen - begin, len(window)):
            expected -= log_p[place - 1, window[place]].item()
        begin, seen = begin + 64, begin + len(window)
    assert row["n_tokens"] == len(ids) - 1
    assert row["nll_sum"] / row["n_tokens"] == pytest.approx(expected / row["n_tokens"], abs=1e-4)
