import json
import math

import pytest

from lossbench.report import sources
from lossbench.report.collect import collect, state_counts
from lossbench.report.errors import NoRunsError
from lossbench.report.records import State
from lossbench.report.sources import wandb_api
from tests.report import wandb_logs
from tests.report.factory import write_plan, write_run

NOW = 1_800_000_000.0
GOOD = {"test/em": 0.5, "val/nll": 0.2}


def states(*targets):
    return {record.location or record.name: record.state for record in collect(targets, NOW).records}


def test_states_of_the_whole_study(study):
    counts = state_counts(collect([study], NOW).records)
    assert counts == {
        State.FINISHED: 8, State.FAILED: 1, State.CRASHED: 1, State.INVALID: 1, State.MISSING: 1,
    }  # fmt: skip


def test_no_runs_says_where_it_looked(tmp_path):
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(NoRunsError, match=r"looked in .* \(1 file\).*does not exist") as error:
        collect([tmp_path, tmp_path / "absent"], NOW)
    assert error.value.exit_code == 2


def test_an_absent_path_beside_a_good_one_is_named(tmp_path):
    write_run(tmp_path / "demo", "focal", 0, metrics=GOOD)
    found = collect([tmp_path / "demo", tmp_path / "absent"], NOW)
    assert len(found.records) == 1
    assert "absent does not exist" in found.problems[0]


def test_overlapping_paths_count_a_run_once(tmp_path):
    path = write_run(tmp_path / "demo", "focal", 0, metrics=GOOD)
    assert len(collect([tmp_path, tmp_path / "demo", path], NOW).records) == 1


def test_planned_runs_that_are_absent_are_missing(tmp_path):
    write_plan(tmp_path / "demo", ["focal"], [0, 1])
    write_run(tmp_path / "demo", "focal", 0, metrics=GOOD)
    found = collect([tmp_path], NOW)
    assert found.has_plan
    assert [(record.seed, record.state) for record in found.records] == [(0, State.FINISHED), (1, State.MISSING)]


def test_a_plan_alone_is_a_report_of_missing_runs(tmp_path):
    write_plan(tmp_path / "demo", ["focal"], [0, 1])
    assert [record.state for record in collect([tmp_path], NOW).records] == [State.MISSING] * 2


def test_the_plan_names_a_run_that_lost_its_identity(tmp_path):
    write_plan(tmp_path / "demo", ["focal"], [0])
    path = write_run(tmp_path / "demo", "focal", 0, metrics=GOOD)
    (path / "run.json").write_text("{")
    (record,) = collect([tmp_path], NOW).records
    assert (record.loss, record.seed, record.state) == ("focal", 0, State.INVALID)


def test_of_two_equal_runs_the_newest_finished_is_kept(tmp_path):
    for folder, status, created, finished in (
        ("old", "finished", "2026-11-01T00:00:00", "2026-11-01T01:00:00"),
        ("new", "finished", "2026-11-02T00:00:00", "2026-11-02T01:00:00"),
        ("newer-failed", "failed", "2026-11-03T00:00:00", "2026-11-03T01:00:00"),
    ):
        kw = {"metrics": GOOD} if status == "finished" else {}
        write_run(tmp_path, "focal", 0, folder=folder, status=status, created=created, finished=finished, **kw)
    found = {location.rsplit("/")[-1]: state for location, state in states(tmp_path).items()}
    assert found == {"old": State.DUPLICATE, "new": State.FINISHED, "newer-failed": State.DUPLICATE}
    kept_is_named = [r.problems[-1] for r in collect([tmp_path], NOW).records if r.state is State.DUPLICATE]
    assert all("new, which is used instead" in problem for problem in kept_is_named)


def test_a_metric_that_peers_have_makes_a_run_incomplete(tmp_path):
    write_run(tmp_path, "focal", 0, metrics=GOOD)
    write_run(tmp_path, "focal", 1, metrics={"val/nll": 0.2})
    write_run(tmp_path, "focal", 0, metrics={"val/nll": 0.2}, dataset="pydocs")
    by_run = {(r.dataset, r.seed): r.state for r in collect([tmp_path], NOW).records}
    assert by_run[("arithmetic", 1)] is State.INCOMPLETE
    assert by_run[("pydocs", 0)] is State.FINISHED


@pytest.mark.parametrize("value", [math.nan, math.inf, 1.2, -0.1])
def test_an_impossible_value_makes_a_run_invalid(tmp_path, value):
    write_run(tmp_path, "focal", 0, metrics=GOOD)
    write_run(tmp_path, "focal", 1, metrics={**GOOD, "test/em": value})
    record = collect([tmp_path], NOW).records[1]
    assert record.state is State.INVALID
    assert record.problems[0].startswith(f"test/em is {value:g}")


def test_per_cent_in_place_of_a_fraction_gets_a_hint(tmp_path):
    for seed in range(2):
        write_run(tmp_path, "focal", seed, metrics={"test/em": 47.0 + seed, "val/nll": 0.2})
    assert all("per cent" in record.problems[0] for record in collect([tmp_path], NOW).records)


def test_an_unranked_metric_out_of_bounds_leaves_the_run_whole(tmp_path):
    write_run(tmp_path, "focal", 0, metrics={**GOOD, "perf/odd": math.nan})
    (record,) = collect([tmp_path], NOW).records
    assert record.state is State.FINISHED
    assert "perf/odd is nan" in record.problems[0]


CSV = "id,loss,model,dataset,seed,state,test/em,val/nll\n{id},focal,tiny,arithmetic,0,{state},{em},0.25\n"


def write_csv(folder, **cells):
    (folder / "runs.csv").write_text(CSV.format(**{"id": "a" * 16, "state": "finished", "em": 0.5, **cells}))
    return folder / "runs.csv"


def write_wandb(folder, em, id="a" * 16):
    results = wandb_logs.summary({"test/em": em, "val/nll": 0.25})
    wandb_logs.write_log(folder, id, [wandb_logs.run(id, wandb_logs.identity()), results, wandb_logs.leave(0)])
    return folder


def test_sources_that_agree_are_one_run_of_the_most_trusted_one(tmp_path):
    (record,) = collect([write_csv(tmp_path), write_wandb(tmp_path / "logs", 0.5 + 1e-9)], NOW).records
    assert (record.source, record.also_in, record.state) == ("wandb log", ("csv",), State.FINISHED)
    assert record.metrics["test/em"] == 0.5 + 1e-9


def test_sources_that_contradict_each_other_leave_no_value_to_use(tmp_path):
    (record,) = collect([write_csv(tmp_path, em=0.51), write_wandb(tmp_path / "logs", 0.5)], NOW).records
    assert record.state is State.CONFLICT
    assert not record.state.is_ended
    assert "test/em is 0.5 in the wandb log, but 0.51 in the csv" in record.problems[-1]


def test_runs_that_have_not_finished_cannot_contradict(tmp_path):
    write_csv(tmp_path, em=0.51, state="interrupted")
    (record,) = collect([tmp_path / "runs.csv", write_wandb(tmp_path / "logs", 0.5)], NOW).records
    assert record.state is State.FINISHED


def test_what_another_attempt_logged_is_no_contradiction(tmp_path):
    folder = write_run(tmp_path, "focal", 0, metrics=GOOD)
    run = json.loads((folder / "run.json").read_text())
    write_wandb(folder, 0.9, run["id"])
    assert [record.state for record in collect([tmp_path], NOW).records] == [State.CONFLICT]
    (folder / "run.json").write_text(json.dumps({**run, "attempt": 2, "created": "2026-12-01T16:00:00+00:00"}))
    assert [record.state for record in collect([tmp_path], NOW).records] == [State.FINISHED]


def test_an_empty_log_is_believed_last(tmp_path):
    wandb_logs.write_log(tmp_path / "logs", "a" * 16, [])
    (record,) = collect([write_csv(tmp_path), tmp_path / "logs"], NOW).records
    assert (record.source, record.also_in, record.state) == ("csv", ("wandb log",), State.FINISHED)
    (record,) = collect([tmp_path / "logs"], NOW).records
    assert record.state is State.EMPTY


def test_a_service_that_is_away_is_said_when_nothing_else_is_found(tmp_path, monkeypatch):
    found = sources.Found(looked_in="wandb:a/b", incomplete="wandb:a/b is incomplete: it sleeps.")
    monkeypatch.setattr(wandb_api, "read", lambda target, now, options: found)
    with pytest.raises(NoRunsError, match="it sleeps"):
        collect(["wandb:a/b"], NOW)
    collection = collect([write_csv(tmp_path), "wandb:a/b"], NOW)
    assert collection.incomplete == ("wandb:a/b is incomplete: it sleeps.",)
    assert len(collection.records) == 1
