"""Prompts and targets equal those of the vision-loss paper's code and of lm-evaluation-harness, to the character."""

import pytest

from lossbench.data.example import Example
from lossbench.data.source_task import LeftOut
from tests.data import golden

CASES = [
    pytest.param(dataset, case, id=f"{dataset}-{number}")
    for dataset in golden.TASKS
    for number, case in enumerate(golden.load("prompts")[dataset])
]


@pytest.mark.parametrize(("dataset", "case"), CASES)
def test_the_seed_prompt_is_that_of_the_paper(dataset: str, case: dict):
    found = golden.example(dataset, case["doc"], "dataset.prompt=seed")
    if not case["seed"]["text"]:
        assert isinstance(found, LeftOut)
        return
    assert isinstance(found, Example)
    assert (found.prompt, found.target) == (case["seed"]["text"], case["seed"]["labels"])


@pytest.mark.parametrize(("dataset", "case"), CASES)
def test_the_harness_prompt_is_that_of_the_harness(dataset: str, case: dict):
    found = golden.example(dataset, case["doc"], "dataset.prompt=lm_eval")
    expected = case["lm_eval"]
    assert isinstance(found, Example)
    assert found.prompt == expected.get("query", expected.get("doc_to_text"))
    if dataset == "gsm8k":
        assert found.target == f" {expected['doc_to_target']}"
        return
    assert list(found.choices) == expected["choices"]
    assert found.gold_choice == int(expected.get("gold", expected.get("doc_to_target")))
    assert found.target == f" {expected['choices'][found.gold_choice]}"


def test_the_stop_strings_of_gsm8k_are_those_of_the_harness():
    stops = golden.load("prompts")["gsm8k"][0]["lm_eval"]["until"]
    assert list(golden.source_task("dataset=gsm8k").stop_strings) == stops
