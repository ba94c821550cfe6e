"""Every example runs and learns; the losses work in other people's training loops."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.py"))


@pytest.mark.slow
@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_an_example_learns(file: Path, monkeypatch: pytest.MonkeyPatch):
    if file.stem == "trl_sft":
        pytest.importorskip("trl")
    spec = importlib.util.spec_from_file_location(f"example_{file.stem}", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    values = module.main(steps=4)
    assert values[-1] < values[0]
