from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from lossbench import app, reevaluate
from lossbench.config import EvaluationConfig
from lossbench.data.tokens import TokenizedExample
from lossbench.errors import DataError
from lossbench.evaluation.memorisation import Passage, memorisation_metrics, memorisation_rows, passages
from lossbench.evaluation.stored import read_rows, recompute
from lossbench.run import run
from tests.models_at_hand import BOS, EOS, byte_tokenizer, tiny_llama


def asked(before: int, after: int, limit: int | None = None) -> EvaluationConfig:
    return app.compose(
        "evaluation=memorisation",
        f"evaluation.memorisation.prompt_tokens={before}",
        f"evaluation.memorisation.continuation_tokens={after}",
        f"evaluation.memorisation.limit={'null' if limit is None else limit}",
    ).evaluation


def texts(count: int, length: int, start: int = 1, *, seed: int = 0) -> list[TokenizedExample]:
    drawn = torch.randint(0, 250, (count, length), generator=torch.Generator().manual_seed(seed)).tolist()
    return [TokenizedExample(f"t-{seed}-{n}", [BOS, *ids], start) for n, ids in enumerate(drawn)]


def test_a_passage_is_cut_behind_the_prompt_and_holds_no_eos() -> None:
    text = TokenizedExample("a", [BOS, 1, 2, 3, 4, 5, 6, EOS], target_start=2)
    (passage,) = passages(asked(2, 3), [text], [], ends_with_eos=True)
    assert passage == Passage("a", "train", [BOS, 1, 2, 3], [4, 5, 6])
    assert passages(asked(2, 2), [text], [text], ends_with_eos=True)[1].part == "held_out"
    with pytest.raises(DataError, match=r"at least 2 \+ 4 tokens, and the longest has 6"):
        passages(asked(2, 4), [text], [], ends_with_eos=True)
    assert len(passages(asked(2, 4), [text], [], ends_with_eos=False)) == 1


def test_short_texts_are_left_out_and_a_limit_takes_evenly_spaced_ones() -> None:
    mixed = [*texts(10, 20), *texts(90, 5)]
    found = passages(asked(10, 10, limit=5), mixed, mixed[:1], ends_with_eos=False)
    assert [passage.id for passage in found] == ["t-0-0", "t-0-2", "t-0-4", "t-0-6", "t-0-8", "t-0-0"]


def test_a_configuration_without_memorisation_asks_for_nothing() -> None:
    assert passages(app.compose().evaluation, [], [], ends_with_eos=False) == []


def test_an_overfitted_model_reproduces_what_it_was_trained_on_and_a_fresh_one_does_not() -> None:
    trained, others = texts(6, 24), texts(6, 24, seed=1)
    wanted = passages(asked(8, 16), trained, others, ends_with_eos=False)
    model, tokenizer = tiny_llama(), byte_tokenizer()
    fresh = memorisation_metrics(memorisation_rows(model, tokenizer, wanted))
    assert fresh["memorisation/extractable"] == fresh["memorisation/extractable_held_out"] == 0
    assert fresh["memorisation/verbatim_tokens"] < 2

    ids = torch.tensor([text.input_ids for text in trained])
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(200):
        optimizer.zero_grad()
        model(input_ids=ids, labels=ids).loss.backward()
        optimizer.step()
    rows = memorisation_rows(model, tokenizer, wanted, batch_size=4)
    learned = memorisation_metrics(rows)
    assert learned["memorisation/extractable"] == 1
    assert learned["memorisation/verbatim_tokens"] == 16
    assert learned["memorisation/extractable_held_out"] == 0
    assert learned["memorisation/n"] == 6
    assert [row["split"] for row in rows] == ["train"] * 6 + ["held_out"] * 6


def test_verbatim_tokens_end_at_the_first_difference() -> None:
    model, tokenizer = tiny_llama(), byte_tokenizer()
    given = list(range(20, 30))
    written: Any = memorisation_rows(model, tokenizer, [Passage("a", "train", given, [0] * 6)])
    own = model.generate(torch.tensor([given]), max_new_tokens=6, do_sample=False, pad_token_id=0)[0, 10:].tolist()
    for differs in (0, 3, 5):
        following = [token if place != differs else (token + 1) % 250 for place, token in enumerate(own)]
        (row,) = memorisation_rows(model, tokenizer, [Passage("a", "train", given, following)])
        assert (row["verbatim_tokens"], row["extractable"]) == (differs, False)
    (row,) = memorisation_rows(model, tokenizer, [Passage("a", "train", given, own)])
    assert (row["verbatim_tokens"], row["extractable"]) == (6, True)
    assert row["continued"] == written[0]["continued"] == row["following"]


@pytest.mark.slow
def test_a_run_records_it_and_an_evaluation_afterwards_says_the_same(tmp_path: Path) -> None:
    folder = run(
        app.compose(
            f"paths.runs={tmp_path}", "dataset=pydocs", "dataset.limit=8", "trainer.max_steps=60", "optimizer.lr=1e-2",
            "trainer.validate_every=60", "scheduler=constant", "evaluation=memorisation", "evaluation.limit=8",
            "evaluation.validation_limit=4", "evaluation.memorisation.prompt_tokens=16",
            "evaluation.memorisation.continuation_tokens=16", "tracking.mode=disabled", "trainer.select_by=val/nll",
        )
    )  # fmt: skip
    metrics = json.loads((folder / "result.json").read_text())["metrics"]
    rows = [row for row in read_rows(folder / "examples.parquet") if row["view"] == "memorised"]
    assert metrics["memorisation/n"] == 8
    assert len(rows) == 16
    assert metrics["memorisation/extractable"] == sum(row["extractable"] for row in rows if row["split"] == "train") / 8
    assert metrics["memorisation/extractable_held_out"] == 0
    assert metrics["data/n_test"] == 8  # memorised passages are no test examples
    assert all(found.ok for found in recompute(folder))
    wishes = reevaluate.Wishes(overrides=("evaluation.memorisation.limit=8",))
    again = reevaluate.evaluate(str(folder), wishes).metrics
    names = [name for name in metrics if name.startswith("memorisation/")]
    assert {name: again[name] for name in names} == {name: metrics[name] for name in names}
