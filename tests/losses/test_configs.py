"""conf/loss/: one file a registered loss with all its defaults, and the mixtures of the papers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from lossbench import losses

FOLDER = Path(__file__).parents[2] / "conf" / "loss"
FILES = sorted(file for file in FOLDER.glob("*.yaml") if file.stem != "custom")


def terms_of(file: Path) -> dict[str, Any]:
    return yaml.safe_load(file.read_text())["terms"]


def parameters_of(term: dict[str, Any]) -> dict[str, Any]:
    return {k: tuple(v) if isinstance(v, list) else v for k, v in term.items() if k not in ("weight", "scope")}


def test_every_registered_loss_has_a_config() -> None:
    assert set(losses.available()) <= {file.stem for file in FILES}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_config_says_what_it_is_and_makes_a_mixture(file: Path) -> None:
    assert file.read_text().startswith("# ")
    assert yaml.safe_load(file.read_text())["name"] == file.stem
    assert losses.mixture(terms_of(file)).scopes


@pytest.mark.parametrize("name", [*losses.available(), "lovasz"])
def test_the_config_of_a_loss_spells_out_the_defaults_of_its_constructor(name: str) -> None:
    registered = "lovasz_softmax" if name == "lovasz" else name
    term = terms_of(FOLDER / f"{name}.yaml")[registered]
    assert parameters_of(term) == losses.info(registered).defaults


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("ce_focal", "focal"),
        ("ce_generalized_dice", "generalized_dice"),
        ("ce_lovasz", "lovasz_softmax"),
        ("ce_self_adjusting_dice", "self_adjusting_dice"),
    ],
)
def test_the_papers_mixtures_put_cross_entropy_on_the_sequence(name: str, other: str) -> None:
    terms = terms_of(FOLDER / f"{name}.yaml")
    assert {k: (t["weight"], t["scope"]) for k, t in terms.items()} == {
        "cross_entropy": (0.6, "sequence"),
        other: (0.4, "answer"),
    }


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("emo1_adaptive", ("emo1", True, None, 0.5, "adaptive")),
        ("emo1_fixed", ("emo1", True, None, 0.5, "fixed")),
        ("emo2_adaptive", ("emo2", True, None, 1.0, "adaptive")),
        ("emo2_fixed", ("emo2", True, None, 1.0, "fixed")),
        ("emo2", ("emo2", False, None, 1.0, "fixed")),
    ],
)
def test_emo_configs_are_the_official_objects(name: str, settings: tuple[Any, ...]) -> None:
    term = terms_of(FOLDER / f"{name}.yaml")["emo"]
    assert tuple(term[k] for k in ("mode", "detach_target", "ratio_cap", "scale", "cost_embedding")) == settings
