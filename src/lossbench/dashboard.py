"""A saved workspace and a saved report on wandb, with the panels of a study.

`make` adds both to a project, or brings up to date what it made before; nothing else in the project is touched. The
workspace is found again by its name, which is a hash of the study, and the report by its title.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lossbench.errors import ConfigError
from lossbench.report.errors import NoRunsError
from lossbench.report.metrics import choose_columns
from lossbench.report.records import RunRecord, State
from lossbench.report.sources import Options, SourceError
from lossbench.report.sources import wandb_api as api
from lossbench.report.sources._wandb_service import OutOfOrderError, Service, quiet_wandb

AXIS = "trainer/global_step"
CURVES = (("val/nll", "Validation NLL"), ("train/cross_entropy", "Training cross-entropy"), ("train/loss", "Objective"))
COSTS = ("time/train_s", "perf/tokens_per_s", "perf/peak_memory_mb", "perf/gpu_hours")
SETTINGS = ("loss", "config.optimizer.lr", "config.trainer.batch_size", "seed")
COLUMNS, WIDTH, HEIGHT = 3, 8, 6  # panels a row of a report, and their size on its grid of 24


@dataclass(frozen=True)
class Panel:
    """A panel by what it shows. `kind` is `bar` (means over seeds), `curve`, `scatter`, `parallel` or `differences`."""

    kind: str
    title: str
    metrics: tuple[str, ...] = ()


@dataclass(frozen=True)
class Section:
    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True)
class Dashboard:
    """Where the saved pages are, and whether they are new."""

    workspace: str
    report: str
    is_new: bool


def make(target: str, study: str | None = None, seconds: float = 300.0) -> Dashboard:
    """Make or update workspace and report of `wandb:ENTITY/PROJECT`, of one study or of the whole project.

    Raises:
        ConfigError: the package wandb-workspaces is absent, or the study is.
        NoRunsError: the project has no runs.
        SourceError: the service refuses.
    """
    entity, project = api.split_target(target)
    try:
        import wandb_workspaces  # noqa: F401 - only to see that it is there
    except ImportError:
        raise ConfigError("Dashboards need the package wandb-workspaces: pip install 'lossbench[dashboard]'.") from None
    found = api.read(target, now=0.0, options=Options(api_timeout=seconds))
    if found.incomplete:
        raise SourceError(found.incomplete)
    runs = found.records
    if not runs:
        raise NoRunsError(f"{target} has no runs, so there is nothing to show on a dashboard.")
    if study is not None:
        studies = sorted({run.study for run in runs})
        runs = [run for run in runs if run.study == study]
        if not runs:
            raise ConfigError(f"{target} has no runs of the study {study!r}; it has {', '.join(studies)}.")
    sections = plan(runs)
    with quiet_wandb() as wandb:
        service = Service(wandb, entity, project, seconds)
        try:
            workspace, is_new = service.within_budget(lambda: _save_workspace(entity, project, study, sections))
            report = service.within_budget(lambda: _save_report(wandb, entity, project, study, sections, runs))
        except OutOfOrderError as error:
            raise SourceError(f"The dashboard is not saved, or not whole: {error}. Try again later.") from error
    return Dashboard(workspace, report, is_new)


def plan(runs: Sequence[RunRecord]) -> tuple[Section, ...]:
    """The sections of a dashboard, from what the runs have: a panel that would be empty is left out."""
    finished = {name for run in runs for name in run.metrics}
    results = [column.name for column in choose_columns(finished, None) if column.name not in COSTS]
    costs = [name for name in COSTS if name in finished]
    sections = [
        Section("Results, mean over seeds", tuple(Panel("bar", name, (name,)) for name in results)),
        Section("Learning curves", tuple(Panel("curve", title, (name,)) for name, title in CURVES)),
        Section(
            "Cost",
            (
                *(Panel("bar", name, (name,)) for name in costs),
                *(Panel("scatter", f"{r} against {costs[0]}", (costs[0], r)) for r in results[:2] if costs),
            ),
        ),
        Section(
            "Settings",
            (
                Panel("parallel", "Settings and results", (*SETTINGS, *results[:2])),
                Panel("differences", "What differs between runs"),
            ),
        ),
    ]
    return tuple(section for section in sections if section.panels)


def title_of(study: str | None) -> str:
    return f"lossbench: {study or 'all studies'}"


def view_name(study: str | None) -> str:
    """The name that a workspace has in its address: eleven hexadecimal digits, the same for the same study."""
    return hashlib.sha256(title_of(study).encode()).hexdigest()[:11]


def _save_workspace(entity: str, project: str, study: str | None, sections: Sequence[Section]) -> tuple[str, bool]:
    from wandb_workspaces import workspaces as ws

    name = view_name(study)
    address = f"https://wandb.ai/{entity}/{project}?nw={name}"  # only entity, project and name are read out of it
    try:
        workspace = ws.Workspace.from_url(address)
        is_new = False
    except ValueError:  # "Workspace ... not found"
        workspace = ws.Workspace(entity=entity, project=project)
        workspace._internal_name = f"nw-{name}-v"
        is_new = True
    workspace.name = title_of(study)
    workspace.sections = [
        ws.Section(name=section.title, panels=[_panel(panel) for panel in section.panels], is_open=True)
        for section in sections
    ]
    workspace.settings = ws.WorkspaceSettings(x_axis=AXIS)
    workspace.runset_settings = ws.RunsetSettings(
        filters=_filters(study),
        groupby=[ws.Config("loss")],
        pinned_columns=["run:displayName", "config:loss", "config:seed", "run:state"],
    )
    workspace.save()
    return str(workspace.url), is_new


def _save_report(
    wandb: Any, entity: str, project: str, study: str | None, sections: Sequence[Section], runs: Sequence[RunRecord]
) -> str:
    from wandb_workspaces.reports import v2 as wr

    title = title_of(study)
    known = [report for report in wandb.Api().reports(f"{entity}/{project}") if report.display_name == title]
    report = wr.Report.from_url(known[0].url) if known else wr.Report(project=project, entity=entity, title=title)
    blocks: list[Any] = [wr.P(_introduction(runs))]
    for section in sections:
        panels = [_panel(panel, number) for number, panel in enumerate(section.panels)]
        runset = wr.Runset(
            entity=entity,
            project=project,
            name=study or project,
            filters=_filters(study),
            groupby=["config.loss"],
        )
        blocks += [wr.H2(section.title), wr.PanelGrid(runsets=[runset], panels=panels)]
    report.blocks = blocks
    report.width = "fluid"
    report.save()
    return str(report.url)


def _introduction(runs: Sequence[RunRecord]) -> str:
    states = {state: sum(run.state is state for run in runs) for state in State}
    counted = ", ".join(f"{count} {state}" for state, count in states.items() if count)
    losses = sorted({run.loss for run in runs})
    return (
        f"{len(runs)} runs ({counted}) of the losses {', '.join(losses)}. "
        "Panels show means over the runs of a loss, and the range from the lowest to the highest. "
        "Runs that failed are in them as far as they came: for tables of finished runs alone, with intervals and "
        "tests, use `lossbench report`."
    )


def _filters(study: str | None) -> Any:
    if study is None:
        return []
    from wandb_workspaces import expr

    return [expr.Config("study") == study]


def _panel(panel: Panel, number: int = 0) -> Any:
    from wandb_workspaces.reports import v2 as wr

    row, column = divmod(number, COLUMNS)
    layout = wr.Layout(x=WIDTH * column, y=HEIGHT * row, w=WIDTH, h=HEIGHT)
    match panel.kind:
        case "bar":
            return wr.BarPlot(
                title=panel.title,
                metrics=[wr.SummaryMetric(panel.metrics[0])],
                groupby=wr.Config("loss"),
                groupby_aggfunc="mean",
                groupby_rangefunc="minmax",
                layout=layout,
            )
        case "curve":
            return wr.LinePlot(
                title=panel.title,
                x=AXIS,
                y=list(panel.metrics),
                groupby=wr.Config("loss"),
                groupby_aggfunc="mean",
                groupby_rangefunc="minmax",
                layout=layout,
            )
        case "scatter":
            x, y = panel.metrics
            return wr.ScatterPlot(title=panel.title, x=wr.SummaryMetric(x), y=wr.SummaryMetric(y), layout=layout)
        case "parallel":
            columns = [
                wr.ParallelCoordinatesPlotColumn(wr.Config(name) if name in SETTINGS else wr.SummaryMetric(name))
                for name in panel.metrics
            ]
            return wr.ParallelCoordinatesPlot(title=panel.title, columns=columns, layout=layout)
    return wr.RunComparer(diff_only="split", layout=layout)
