import json
from pathlib import Path

from lossbench import app
from lossbench.sweep.plan import expect, plan
from lossbench.tracking.record import open_record


def configs(tmp_path: Path, *seeds: int):
    return [app.compose(f"seed={seed}", f"paths.runs={tmp_path}", "tracking.mode=disabled") for seed in seeds]


def test_the_same_run_twice_is_one_job(tmp_path: Path):
    assert len(plan(configs(tmp_path, 0, 1, 0))) == 2


def test_a_job_knows_where_it_stands(tmp_path: Path):
    done, failed, missing = plan(configs(tmp_path, 0, 1, 2))
    with open_record(done.config, done.identity):
        pass
    try:
        with open_record(failed.config, failed.identity):
            raise ValueError("no luck")
    except ValueError:
        pass
    assert [job.state for job in (done, failed, missing)] == ["finished", "failed", "missing"]
    assert failed.reason == "no luck"


def test_what_is_expected_adds_up_over_sweeps(tmp_path: Path):
    expect(plan(configs(tmp_path, 0, 1)))
    expect(plan(configs(tmp_path, 1, 2)))
    runs = json.loads((tmp_path / "default" / "sweep.json").read_text())["runs"]
    assert [run["seed"] for run in runs] == [0, 1, 2]
    assert {"id", "name", "loss", "model", "dataset"} <= set(runs[0])
