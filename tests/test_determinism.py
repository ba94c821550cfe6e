from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from lossbench.app import compose
from lossbench.identity import identify
from lossbench.run import run

QUICK = (
    "evaluation.limit=3", "evaluation.generate=false", "trainer.accelerator=cpu", "trainer.progress=false",
    "trainer.max_steps=2", "dataset.train_examples=20", "evaluation.validation_limit=3", "tracking.mode=disabled",
    "loss=lovasz",
)  # fmt: skip


@pytest.fixture(autouse=True)
def _as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    yield
    torch.use_deterministic_algorithms(False)


def test_only_deterministic_algorithms_are_allowed_while_the_switch_is_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    from lossbench.training import module

    seen: list[tuple[bool, str | None]] = []
    whole = module.FineTuning.training_step

    def watched(*given: Any) -> Any:
        seen.append((torch.are_deterministic_algorithms_enabled(), os.environ.get("CUBLAS_WORKSPACE_CONFIG")))
        return whole(*given)

    monkeypatch.setattr(module.FineTuning, "training_step", watched)
    for switch in ("true", "false"):
        run(compose(f"paths.runs={tmp_path}", f"trainer.deterministic={switch}", *QUICK))
    assert seen[:2] == [(True, ":4096:8")] * 2
    assert [on for on, _ in seen[2:]] == [False] * 2


def test_two_runs_give_the_same_bits(tmp_path: Path):
    kept = []
    for place in ("a", "b"):
        folder = run(compose(f"paths.runs={tmp_path / place}", "trainer.deterministic=true", *QUICK))
        kept.append(load_file(folder / "checkpoints" / "best.safetensors"))
    assert kept[0].keys() == kept[1].keys()
    assert all(torch.equal(kept[0][name], kept[1][name]) for name in kept[0])


def test_the_switch_makes_another_run():
    assert identify(compose("trainer.deterministic=true")).id != identify(compose()).id
