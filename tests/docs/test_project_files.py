"""Files that other programs read: they parse, and say the same as pyproject.toml."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from lossbench import __version__
from tests.docs.pages import ROOT

PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
FORMS = sorted(file for file in (ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml") if file.stem != "config")


def name_of(requirement: str) -> str:
    return re.split(r"[\[<>=!~ ]", requirement)[0]


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


REQUIREMENTS = sorted(
    {
        name_of(requirement)
        for group in (PROJECT["dependencies"], *PROJECT["optional-dependencies"].values())
        for requirement in group
    }
    - {"lossbench"}
)


def test_the_version_is_the_same_everywhere() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == PROJECT["version"] == __version__
    assert re.fullmatch(r"\d+\.\d+\.\d+((a|b|rc)\d+)?", __version__)
    assert citation["license"] == PROJECT["license"]
    assert all(entry["authors"] and entry["title"] for entry in [citation, *citation["references"]])


def test_the_changelog_begins_with_what_is_not_released_or_with_this_version() -> None:
    headings = re.findall(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text(), flags=re.M)
    assert headings[0] == "Unreleased" or headings[0].startswith(__version__)


@pytest.mark.parametrize("file", FORMS, ids=lambda file: file.stem)
def test_a_form_has_what_github_asks_for(file: Path) -> None:
    form = yaml.safe_load(file.read_text())
    assert {"name", "description", "body"} <= form.keys()
    ids = [part["id"] for part in form["body"]]
    assert len(ids) == len(set(ids))
    for part in form["body"]:
        assert part["type"] in ("textarea", "input", "dropdown", "checkboxes") and part["attributes"]["label"]


def test_hooks_call_what_the_environment_and_the_makefile_have() -> None:
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.M)
    for hook in hooks:
        program, *words = hook["entry"].split()
        if program == "make":
            assert words[-1] in targets
        else:
            assert Path(program).name in REQUIREMENTS
        re.compile(hook.get("files", ""))


@pytest.mark.parametrize("name", REQUIREMENTS)
def test_a_dependency_is_pinned_and_its_purpose_is_said(name: str) -> None:
    pins = {normal(name_of(line)) for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line}
    assert normal(name) in pins | {"lm-eval"}  # which is in no environment that the tests make
    assert re.search(rf"\b{re.escape(name)}\b", (ROOT / "docs/dependencies.md").read_text())


@pytest.mark.parametrize("requirement", [one for one in PROJECT["dependencies"] if "<" in one])
def test_an_upper_bound_is_justified(requirement: str) -> None:
    table = (ROOT / "docs/dependencies.md").read_text().partition("## Bounds")[2]
    name, bounds = name_of(requirement), requirement.removeprefix(name_of(requirement))
    assert f"{name} {bounds.replace(',', ', ')}" in table
