from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from lossbench.errors import ConfigError
from lossbench.evaluation import harness


def test_an_absent_harness_is_said_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lm_eval", None)
    with pytest.raises(ConfigError, match=r"pip install 'lossbench\[harness\]'"):
        harness.check_available()


def test_the_model_in_memory_is_handed_over_and_numbers_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, Any] = {}

    def simple_evaluate(**settings: Any) -> dict[str, Any]:
        seen.update(settings)
        values = {"alias": "gsm8k", "exact_match,strict-match": 0.25, "exact_match_stderr,strict-match": "N/A"}
        return {"results": {"gsm8k": values}}

    package, models = ModuleType("lm_eval"), ModuleType("lm_eval.models")
    package.simple_evaluate = simple_evaluate  # type: ignore[attr-defined]
    package.models = models  # type: ignore[attr-defined]
    models.huggingface = ModuleType("lm_eval.models.huggingface")  # type: ignore[attr-defined]
    models.huggingface.HFLM = lambda **given: SimpleNamespace(**given)  # type: ignore[attr-defined]
    for module in (package, models, models.huggingface):
        monkeypatch.setitem(sys.modules, module.__name__, module)

    model, tokenizer = object(), object()
    found = harness.evaluate(model, tokenizer, ["gsm8k"], limit=5, batch_size=3)
    assert found == {"harness/gsm8k/exact_match,strict-match": 0.25}
    assert seen["model"].pretrained is model
    assert seen["model"].tokenizer is tokenizer
    assert (seen["model"].batch_size, seen["tasks"], seen["limit"]) == (3, ["gsm8k"], 5)
