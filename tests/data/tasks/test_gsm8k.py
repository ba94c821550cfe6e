import json
from pathlib import Path

import pytest

from lossbench.errors import DataError
from lossbench.evaluation import answers
from tests.data.golden import source_task
from tests.real_data import real_data


def test_a_gold_answer_without_a_number_is_refused_with_file_and_line(tmp_path: Path):
    good, bad = ({"question": "Q?", "answer": answer} for answer in ("2.\n#### 2", "no idea"))
    for split, rows in {"train": [good, bad], "test": [good]}.items():
        (tmp_path / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    task = source_task("dataset=gsm8k", f"dataset.path={tmp_path}")
    with pytest.raises(DataError, match=r"train\.jsonl, line 2: the answer 'no idea' has no number after '####'"):
        [*task.examples("train"), *task.examples("validation")]


@pytest.mark.parametrize("policy", ["seed", "clean"])
def test_real_rows_have_the_published_counts_and_splits(policy: str):
    path = real_data("datasets/gsm8k")
    task = source_task("dataset=gsm8k", f"dataset.path={path}", f"dataset.split_policy={policy}")
    examples = {split: task.examples(split) for split in ("train", "validation", "test")}
    assert {split: len(found) for split, found in examples.items()} == {"train": 6725, "validation": 748, "test": 1319}
    assert not {e.id for e in examples["train"]} & {e.id for e in examples["validation"]}
    assert any("test of" in sentence and "1,319 rows, as published" in sentence for sentence in task.notes.sentences)
    assert not any("not comparable" in sentence for sentence in task.notes.sentences)


@pytest.mark.parametrize("prompt", ["seed", "lm_eval"])
def test_every_real_target_scores_as_its_own_answer(prompt: str):
    path = real_data("datasets/gsm8k")
    examples = source_task("dataset=gsm8k", f"dataset.path={path}", f"dataset.prompt={prompt}").examples("test")
    right = [answers.exact_match(e.target, e.answer, rule="lossbench") for e in examples if e.answer is not None]
    assert (sum(right), len(right)) == (1319, 1319)
