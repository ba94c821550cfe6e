"""Descriptions read from the docstrings, and the pages made of them."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from lossbench import losses

SCRIPT = Path(__file__).parents[2] / "scripts" / "loss_docs.py"


@pytest.fixture(scope="module")
def loss_docs() -> ModuleType:
    spec = importlib.util.spec_from_file_location("loss_docs", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["loss_docs"] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", losses.available())
def test_every_loss_says_what_it_is(name: str) -> None:
    info = losses.info(name)
    assert info.summary.endswith(".") and "\n" not in info.summary
    assert info.formula
    assert info.parameters.keys() == info.defaults.keys(), "every parameter is documented, and nothing else"
    assert all(info.parameters.values())
    assert "https://" in info.paper
    assert info.kind in ("TargetLoss", "RowLoss", "BatchLoss")
    assert info.scope in ("local", "local+stats", "sequence", "global")
    assert info.cost
    if info.scope == "global":
        assert any("accumulation" in hazard for hazard in info.hazards)


def test_hazards_and_deviations_are_whole_sentences_across_lines() -> None:
    info = losses.info("focal")
    assert len(info.hazards) == 2 and len(info.deviations) == 3
    assert info.deviations[1].endswith("enter the mean as uniform rows of class 0.")
    assert info.formula.split("\n")[0] == "f = -w_y (1 - p_t)^gamma log p_t"


def test_an_unknown_loss_cannot_be_described() -> None:
    with pytest.raises(losses.UnknownLoss, match="Did you mean 'entmax'"):
        losses.info("entmaxx")


def test_the_pages_are_current(loss_docs: ModuleType) -> None:
    assert loss_docs.stale() == [], "run python scripts/loss_docs.py"


def test_there_is_a_page_for_every_loss_and_an_index(loss_docs: ModuleType) -> None:
    assert set(loss_docs.pages()) == {"index.md", *(f"{name}.md" for name in losses.available())}


def test_an_edited_or_forgotten_page_is_noticed(loss_docs: ModuleType, tmp_path: Path) -> None:
    for name, content in loss_docs.pages().items():
        (tmp_path / name).write_text(content)
    (tmp_path / "focal.md").write_text("something else")
    (tmp_path / "gone.md").write_text("of no loss")
    (tmp_path / "emo.md").unlink()
    assert loss_docs.stale(tmp_path) == ["emo.md", "focal.md", "gone.md"]
