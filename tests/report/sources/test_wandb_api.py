"""The real client of wandb against a server on loopback. One wandb process serves the whole module."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from lossbench.cli import app
from lossbench.errors import ConfigError
from lossbench.report.collect import collect
from lossbench.report.records import State
from lossbench.report.sources import Options, SourceError, wandb_api
from tests.report.factory import write_run
from tests.wandb_server import WandbServer

NOW = 1_800_000_000.0
TARGET = "wandb:team/study"


def add(server: WandbServer, seed: int, em: Any = 0.5, **more: Any) -> Any:
    config = {
        "name": f"focal-s{seed}", "group": "g", "study": "demo", "loss": "focal", "model": "tiny",
        "dataset": "arithmetic", "seed": seed, "attempt": 1, "config": {"optimizer": {"lr": 0.001}},
        "versions": {"torch": "2.13.0"}, "created": "2026-11-30T16:00:00+00:00",
    }  # fmt: skip
    summary = more.pop("summary", {"test/em": em, "val/nll": 0.2, "train/loss": 9.0, "_runtime": 3, "ckpt/step": 40})
    return server.store.add_run("study", f"{seed:016x}", config, summary, **more)


def read(seconds: float = 20.0, **options: Any):
    return wandb_api.read(TARGET, NOW, Options(api_timeout=seconds, **options))


def test_a_thousand_runs_take_three_requests(server: WandbServer):
    for seed in range(1000):
        add(server, seed)
    found = read()
    assert [request.label for request in server.requests] == ["Viewer", "Runs", "Runs"]
    assert len(found.records) == 1000
    run = next(record for record in found.records if record.seed == 7)
    assert (run.loss, run.model, run.dataset, run.study, run.group) == ("focal", "tiny", "arithmetic", "demo", "g")
    assert (run.state, run.metrics) == (State.FINISHED, {"test/em": 0.5, "val/nll": 0.2})
    assert (run.checkpoint_step, run.config["optimizer.lr"]) == (40, 0.001)
    assert run.url == f"{server.url}/team/study/runs/{7:016x}"
    assert found.incomplete is None


def test_only_what_changed_is_asked_for_again(server: WandbServer, tmp_path: Path):
    runs = [add(server, seed) for seed in range(6)]
    runs[5].state = "running"
    first = read(api_cache=tmp_path)
    runs[2].heartbeat, runs[2].summary = "2026-12-01T00:00:00Z", '{"test/em": 0.75}'
    server.requests.clear()
    again = read(api_cache=tmp_path)
    asked = [request.variables["filters"] for request in server.requests if request.label == "Runs"]
    assert len(asked) == 2
    assert {f"{seed:016x}" for seed in range(6) if f"{seed:016x}" in asked[1]} == {f"{2:016x}", f"{5:016x}"}
    assert [record.metrics.get("test/em") for record in again.records] == [0.5, 0.5, 0.75, 0.5, 0.5, None]
    assert [r.metrics for r in again.records[:2]] == [r.metrics for r in first.records[:2]]


def test_what_is_kept_is_for_this_user_alone_and_damage_of_it_is_no_matter(server: WandbServer, tmp_path: Path):
    add(server, 0)
    read(api_cache=tmp_path)
    (file,) = tmp_path.iterdir()
    assert file.stat().st_mode & 0o077 == 0
    file.write_text('{"format": 1, "runs": {"x": 3}}')
    assert len(read(api_cache=tmp_path).records) == 1
    file.write_text("{")
    assert len(read(api_cache=tmp_path).records) == 1


def test_words_for_nan_become_numbers(server: WandbServer):
    add(server, 0, summary='{"test/em": "NaN", "test/ppl": "Infinity", "val/nll": NaN}')
    (run,) = read().records
    assert all(math.isnan(run.metrics[key]) for key in ("test/em", "val/nll"))
    assert run.metrics["test/ppl"] == math.inf


def test_one_broken_summary_spoils_one_run(server: WandbServer):
    for seed in range(40):
        add(server, seed)
    add(server, 40, summary='{"test/em": 0.')
    found = read()
    by_seed = {record.id: record for record in found.records}
    assert len(by_seed) == 41
    broken = by_seed.pop(f"{40:016x}")
    assert (broken.state, broken.metrics) == (State.INVALID, {})
    assert "cannot be read" in broken.problems[0]
    assert all(run.state is State.FINISHED for run in by_seed.values())
    assert len(server.requests) < 20


def test_pages_that_repeat_and_omit_runs_are_repaired(server: WandbServer):
    for seed in range(8):
        add(server, seed)
    server.store.listings["+created_at"] = lambda runs: [*runs[:4], *runs[3:7]]
    found = read()
    assert (len(found.records), found.incomplete) == (8, None)
    server.store.listings["-created_at"] = lambda runs: [runs[1], *runs[1:]]
    found = read()
    assert len(found.records) == 7
    assert found.incomplete is not None
    assert "counts 8 runs, but lists 7" in found.incomplete


def test_a_run_that_is_deleted_meanwhile_is_missing(server: WandbServer, tmp_path: Path):
    runs = [add(server, seed) for seed in range(2)]
    read(api_cache=tmp_path)
    runs[1].heartbeat = "2026-12-01T00:00:00Z"
    server.store.deleted.add(runs[1].name)
    assert [record.state for record in read(api_cache=tmp_path).records] == [State.FINISHED, State.MISSING]


@pytest.mark.parametrize("fault", [{"status": 429, "headers": {"Retry-After": "1"}}, {"status": 500}, {"drop": True}])
def test_a_passing_fault_costs_time_and_nothing_else(server: WandbServer, fault: dict[str, Any]):
    add(server, 0)
    server.fail("Runs", **fault)
    found = read()
    assert (len(found.records), found.incomplete) == (1, None)


@pytest.mark.parametrize("status", [401, 403, 404])
def test_a_refusal_names_host_and_project_and_never_the_key(server: WandbServer, status: int):
    add(server, 0)
    server.fail("Runs", status=status)
    with pytest.raises(SourceError, match="does not give team/study") as refused:
        read()
    assert refused.value.exit_code == 4
    assert server.url in str(refused.value)
    assert "0" * 40 not in str(refused.value)


def test_a_wrong_key_and_an_absent_project_are_refusals(server: WandbServer, monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(SourceError, match="no such project"):
        read()
    monkeypatch.setenv("WANDB_API_KEY", "1" * 40)
    with pytest.raises(SourceError, match="key is missing or wrong") as refused:
        read()
    assert "1" * 40 not in str(refused.value)


def test_an_outage_leaves_what_was_known_and_local_runs(server: WandbServer, tmp_path: Path):
    add(server, 0)
    read(api_cache=tmp_path / "cache")
    write_run(tmp_path / "runs", "lovasz", 0, metrics={"test/em": 0.25, "val/nll": 0.2})
    server.fail("Runs", status=503, times=1000)
    options = Options(api_timeout=2, api_cache=tmp_path / "cache")
    found = collect([tmp_path / "runs", TARGET], NOW, options)
    assert [record.loss for record in found.records] == ["focal", "lovasz"]
    assert found.incomplete[0].startswith("wandb:team/study is incomplete: ")
    assert "1 run is shown as last known" in found.incomplete[0]


def test_a_run_of_both_sources_is_one_run_and_contradictions_are_named(server: WandbServer, tmp_path: Path):
    folders = [write_run(tmp_path, "focal", seed, metrics={"test/em": 0.5, "val/nll": 0.2}) for seed in (0, 1)]
    for seed, folder in enumerate(folders):
        run = add(server, seed, em=0.5 + 0.01 * seed)
        del server.store.runs[run.key]
        run.name = folder.name[-16:]
        server.store.runs[run.key] = run
    agreeing, contradicting = collect([tmp_path, TARGET], NOW).records
    assert (agreeing.source, agreeing.also_in, agreeing.state) == ("run folder", ("wandb API",), State.FINISHED)
    assert agreeing.url and agreeing.url.startswith(server.url)
    assert contradicting.state is State.CONFLICT
    assert "test/em is 0.5 in the run folder, but 0.51 in the wandb API" in contradicting.problems[0]


def test_rows_are_read_whole_when_they_are_wanted(server: WandbServer, tmp_path: Path):
    rows = [{"train/loss": 2.0, "trainer/global_step": 1}, {"val/nll": 1.0, "trainer/global_step": 2}]
    again = [{"val/nll": 3.0, "trainer/global_step": 2}, {"val/nll": 0.5, "trainer/global_step": 1}]
    add(server, 0, history=rows + again)
    (run,) = read(api_cache=tmp_path).records
    assert run.read_history(("val/nll",)).series == {}
    for label in (4, 0):  # the second time from the cache
        server.requests.clear()
        (run,) = read(api_histories=True, api_cache=tmp_path).records
        history = run.read_history(("val/nll", "train/loss"))
        assert history.series == {"val/nll": [(1, 0.5)]}
        assert history.overlap == 3
        assert len(server.requests) == 2 + label


def test_a_service_that_fails_at_the_rows_leaves_the_runs(server: WandbServer):
    add(server, 0, history=[{"train/loss": 2.0}])
    server.fail("RunHistoryKeys", status=503, times=1000)
    found = read(seconds=2, api_histories=True)
    assert found.records[0].metrics == {"test/em": 0.5, "val/nll": 0.2}
    assert found.incomplete and "the training log of 1 run is lacking" in found.incomplete


def test_the_command_reports_on_a_project_and_asks_little_the_second_time(server: WandbServer, tmp_path: Path):
    for seed in range(3):
        add(server, seed, em=0.5 + seed / 100)
    for _ in range(2):
        server.requests.clear()
        done = CliRunner().invoke(app, ["report", TARGET, "--out", str(tmp_path / "out"), "--format", "csv"])
        assert done.exit_code == 0, done.output
        assert len(server.requests) == 2
        assert "3 finished" in " ".join(done.output.split())
    rows = (tmp_path / "out" / "runs.csv").read_text().splitlines()
    assert len(rows) == 4
    assert f"{server.url}/team/study/runs/" in rows[1]


@pytest.mark.parametrize("target", ["wandb:", "wandb:team", "wandb:team/study/runs/x", "wandb:a b/c"])
def test_a_target_of_another_shape_is_explained(target: str):
    with pytest.raises(ConfigError, match="write wandb:ENTITY/PROJECT"):
        wandb_api.read(target, NOW)
