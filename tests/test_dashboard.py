"""Saved pages of the real wandb-workspaces, on a server on loopback."""

from __future__ import annotations

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from lossbench import dashboard
from lossbench.cli import app
from lossbench.errors import ConfigError
from lossbench.report.errors import NoRunsError
from lossbench.report.records import RunRecord, State
from lossbench.report.sources import SourceError
from tests.wandb_server import WandbServer
from tests.wandb_server.fixtures import running_server, server  # noqa: F401

TARGET = "wandb:team/bench"
RESULTS = {"test/em": 0.5, "test/nll": 0.9, "val/nll": 0.2, "time/train_s": 60.0}


@pytest.fixture
def project(server: WandbServer) -> WandbServer:  # noqa: F811
    pytest.importorskip("wandb_workspaces", reason="the optional package wandb-workspaces is not installed")
    for number, (study, loss) in enumerate((("demo", "focal"), ("demo", "emo"), ("other", "focal"))):
        identity = {"loss": loss, "model": "tiny", "dataset": "arithmetic", "seed": 0, "study": study}
        server.store.add_run("bench", f"run{number}", identity, RESULTS)
    return server


def keys(spec: str) -> set[str]:
    """All metric names that a saved page mentions."""
    text = json.dumps(json.loads(spec))
    return {name for name in (*RESULTS, "train/cross_entropy", "test/em") if name in text}


def test_a_study_gets_a_workspace_and_a_report_which_are_updated_in_place(project: WandbServer):
    made = dashboard.make(TARGET, "demo")
    views = project.store.views
    assert made.is_new
    assert {view.type: view.display_name for view in views.values()} == {
        "project-view": "lossbench: demo", "runs": "lossbench: demo",
    }  # fmt: skip
    for view in views.values():
        assert keys(view.spec) == {"test/em", "val/nll", "time/train_s", "train/cross_entropy"}
        assert '"demo"' in view.spec  # the runs of this study alone
        assert "config.value.optimizer.lr" in view.spec
    assert made.workspace.startswith(f"{project.url}/team/bench?nw=")
    assert "/team/bench/reports/lossbench" in made.report
    before = {id: json.loads(view.spec) for id, view in views.items()}

    again = dashboard.make(TARGET, "demo")
    assert (again.workspace, again.report, again.is_new) == (made.workspace, made.report, False)
    assert len(views) == 2
    assert panels(before) == panels({id: json.loads(view.spec) for id, view in views.items()})
    assert project.unknown == []


def panels(specs: dict[str, Any]) -> dict[str, int]:
    return {id: json.dumps(spec).count('"viewType"') for id, spec in specs.items()}


def test_the_command_says_where_the_pages_are(project: WandbServer):
    for word in ("Made:", "Updated:"):
        result = CliRunner().invoke(app, ["dashboard", TARGET])
        assert result.exit_code == 0, result.output
        assert word in result.output
        assert f"{project.url}/team/bench?nw=" in result.output


def test_what_is_wrong_is_a_sentence(project: WandbServer):
    with pytest.raises(ConfigError, match="no runs of the study 'dmo'; it has demo, other"):
        dashboard.make(TARGET, "dmo")
    with pytest.raises(SourceError, match="no such project"):
        dashboard.make("wandb:team/bensch")
    project.store.runs.clear()
    project.store.add_run("bench", "x", entity="others")
    with pytest.raises(NoRunsError, match="nothing to show"):
        dashboard.make(TARGET)
    with pytest.raises(ConfigError, match="write wandb:ENTITY/PROJECT"):
        dashboard.make("team/bench")


def test_panels_that_would_be_empty_are_left_out():
    run = RunRecord("a", loss="focal", state=State.FINISHED, metrics={"test/nll": 1.0})
    sections = {section.title: section.panels for section in dashboard.plan([run])}
    assert [panel.metrics for panel in sections["Results, mean over seeds"]] == [("test/nll",)]
    assert "Cost" not in sections


def test_a_study_has_the_same_address_every_time():
    assert dashboard.view_name("demo") == dashboard.view_name("demo") != dashboard.view_name(None)
    assert set(dashboard.view_name("demo")) <= set("0123456789abcdef")  # wandb-workspaces cuts `nw-` and `-v` anywhere


def test_the_package_is_asked_for_by_name(monkeypatch: pytest.MonkeyPatch):
    import sys

    monkeypatch.setitem(sys.modules, "wandb_workspaces", None)
    with pytest.raises(ConfigError, match=r"pip install 'lossbench\[dashboard\]'"):
        dashboard.make(TARGET)
