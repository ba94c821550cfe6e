"""The generated pages are current, and say something about everything."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest
import typer

from lossbench import config
from lossbench.cli import app
from lossbench.report.quantities import QUANTITIES
from tests.docs.pages import ROOT


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["cli_docs", "config_docs", "metric_docs"])
def test_a_generated_page_is_current(name: str) -> None:
    made = script(name)
    assert made.PAGE.read_text(encoding="utf-8") == made.page(), f"run python scripts/{name}.py"


@pytest.mark.parametrize("name", ["cli_docs", "config_docs", "metric_docs"])
def test_a_page_that_is_not_current_is_noticed(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = script(name)
    monkeypatch.setattr(made, "PAGE", tmp_path / "page.md")
    monkeypatch.setattr(sys, "argv", [name, "--check"])
    assert made.main() == 1
    assert f"scripts/{name}.py" in capsys.readouterr().err
    monkeypatch.setattr(sys, "argv", [name])
    assert made.main() == 0
    monkeypatch.setattr(sys, "argv", [name, "--check"])
    assert made.main() == 0


def test_every_key_of_a_run_is_there_with_a_meaning() -> None:
    rows = dict(
        re.findall(r"^\| `([\w.]+)` \|.*\| (.*) \|$", (ROOT / "docs/reference/config.md").read_text(), flags=re.M)
    )
    wanted = {key for key in config.keys() if not key.startswith("loss.")}  # noqa: SIM118
    wanted |= {f"evaluation.mauve.{key}" for key in config.MauveConfig.model_fields}
    assert wanted <= rows.keys()
    assert [key for key in wanted if not rows[key].strip()] == []


def test_every_quantity_is_there() -> None:
    text = (ROOT / "docs/reference/metrics.md").read_text()
    assert [name for name in QUANTITIES if f"| `{name}` |" not in text] == []


def test_every_command_is_there_and_shows_an_example() -> None:
    text = (ROOT / "docs/reference/cli.md").read_text()

    def walk(command: object, path: str) -> list[str]:
        inner = getattr(command, "commands", {})
        return [path, *(found for name, one in inner.items() for found in walk(one, f"{path} {name}"))]

    for path in walk(typer.main.get_command(app), "lossbench")[1:]:
        section = text.partition(f"# `{path}`\n")[2].partition("\n#")[0]
        example = path.removesuffix(" list") if path == "lossbench runs list" else path
        assert f"\n{example} " in section or f"\n{example}\n" in section, path


def test_losses_that_are_advised_exist() -> None:
    table = (
        (ROOT / "docs/howto/choosing-a-loss.md")
        .read_text()
        .partition("| you worry about |")[2]
        .partition("These are")[0]
    )
    named = set(re.findall(r"`(\w+)`", table))
    assert len(named) > 15
    assert [name for name in named if not (ROOT / "conf" / "loss" / f"{name}.yaml").is_file()] == []
