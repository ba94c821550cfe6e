import json
import math
import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lossbench.report.records import State
from lossbench.report.sources import run_folder
from tests.report.factory import answers, write_run

NOW = 1_800_000_000.0


def read(path):
    return run_folder.read_run(path, location=path.name, now=NOW)


def test_a_finished_run_is_read_whole(tmp_path):
    values = {"test/em": 0.47, "val/nll": 0.2}
    run = read(write_run(tmp_path / "demo", "focal", 3, metrics=values, examples=answers(2)))
    assert (run.loss, run.model, run.dataset, run.seed, run.study) == ("focal", "tiny", "arithmetic", 3, "demo")
    assert (run.state, run.metrics, run.problems) == (State.FINISHED, values, ())
    assert (run.checkpoint_step, run.checkpoint_criterion, run.last_step, run.duration) == (150, "val/nll", 150, 90.0)
    assert run.config["loss.terms.focal.weight"] == 1.0
    assert run.versions["git commit"] == "0123456789ab"
    assert len(run.read_examples().rows) == 6
    assert run.read_history(("val/nll",)).series["val/nll"][0] == (10, 1.5 / 10 + 3 / 50)


def test_a_failed_run_names_its_error(tmp_path):
    error = {"type": "DivergedError", "message": "the loss became NaN at step 3"}
    run = read(write_run(tmp_path, "focal", 0, status="failed", error=error))
    assert (run.state, run.error) == (State.FAILED, "DivergedError: the loss became NaN at step 3")


def test_the_traceback_gives_the_error_that_the_result_lacks(tmp_path):
    run = read(write_run(tmp_path, "focal", 0, status="failed", traceback="Traceback\n  x\nValueError: no\n"))
    assert run.error == "ValueError: no"


def test_a_silent_run_has_crashed_and_a_fresh_one_runs(tmp_path):
    assert read(write_run(tmp_path, "focal", 0, status=None, age=601)).state is State.CRASHED
    assert read(write_run(tmp_path, "focal", 1, status=None, age=599)).state is State.RUNNING


def test_an_interrupted_run_is_told_apart(tmp_path):
    assert read(write_run(tmp_path, "focal", 0, status="interrupted")).state is State.INTERRUPTED


def test_words_for_nan_become_numbers(tmp_path):
    run = read(write_run(tmp_path, "focal", 0, metrics={"test/ppl": math.inf, "test/nll": math.nan}))
    assert run.metrics["test/ppl"] == math.inf
    assert math.isnan(run.metrics["test/nll"])


def test_metrics_that_are_no_numbers_are_absent_and_named(tmp_path):
    values = {"test/em": True, "test/nll": [1], "test/x": "fast", "test/best": {"max": 1.0, "last": 0.5}, "a/b": 1}
    run = read(write_run(tmp_path, "focal", 0, metrics=values))
    assert run.metrics == {"a/b": 1.0}
    assert len(run.problems) == 4
    assert "test/best/max" in " ".join(run.problems)


def test_a_broken_result_makes_that_run_invalid(tmp_path):
    path = write_run(tmp_path, "focal", 0, metrics={"test/em": 0.5})
    (path / "result.json").write_text('{"status": "fin')
    run = read(path)
    assert (run.state, run.metrics, run.loss) == (State.INVALID, {}, "focal")
    assert "result.json is not JSON" in run.problems[0]


def test_a_run_without_identity_gives_no_numbers(tmp_path):
    path = write_run(tmp_path, "focal", 0, metrics={"test/em": 0.5})
    (path / "run.json").unlink()
    run = read(path)
    assert (run.state, run.metrics, run.loss) == (State.INVALID, {}, "unknown")
    assert path.name.endswith(run.id)


def test_an_unknown_status_is_invalid(tmp_path):
    run = read(write_run(tmp_path, "focal", 0, status="victorious"))
    assert run.state is State.INVALID
    assert "'victorious'" in run.problems[0]


def test_a_cut_last_line_is_left_out_and_its_byte_is_named(tmp_path):
    path = write_run(tmp_path, "focal", 0, status=None, cut=True)
    size = os.path.getsize(path / "metrics.jsonl")
    history = read(path).read_history(("val/nll",))
    assert [step for step, _ in history.series["val/nll"]] == list(range(10, 150, 10))
    assert f"of {size}" in history.problems[0]


def test_a_log_that_is_being_written_is_no_problem(tmp_path):
    run = read(write_run(tmp_path, "focal", 0, status=None, cut=True, age=1))
    assert run.state is State.RUNNING
    assert run.read_history(("val/nll",)).problems == ()


def test_rows_around_damage_are_kept(tmp_path):
    path = write_run(tmp_path, "focal", 0)
    lines = (path / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    lines[1] = b"\xff\x00{]\n"
    (path / "metrics.jsonl").write_bytes(b"".join(lines))
    history = read(path).read_history(("val/nll",))
    assert [step for step, _ in history.series["val/nll"]][:2] == [10, 30]
    assert f"the first at byte {len(lines[0])}" in history.problems[0]


def test_a_damaged_parquet_file_is_named(tmp_path):
    path = write_run(tmp_path, "focal", 0)
    (path / "examples.parquet").write_bytes(b"PAR1 no")
    examples = read(path).read_examples()
    assert examples.rows == []
    assert examples.problems[0].startswith("examples.parquet cannot be read")


def test_control_characters_reach_no_terminal(tmp_path):
    run = read(write_run(tmp_path, "focal\x1b[31m\n\ud800", 0, folder="x"))
    assert run.loss == "focal\ufffd[31m ?"


def test_runs_are_found_from_every_level(tmp_path):
    path = write_run(tmp_path / "runs" / "demo", "focal", 0)
    for target in (tmp_path / "runs", tmp_path / "runs" / "demo", path):
        found = run_folder.read(str(target), NOW)
        assert [record.path for record in found.records] == [path]


def test_checkpoints_and_wandb_are_not_searched(tmp_path):
    path = write_run(tmp_path / "demo", "focal", 0)
    inner = tmp_path / "demo" / "wandb" / "offline-run"
    inner.mkdir(parents=True)
    (inner / "run.json").write_text("{}")
    assert [record.path for record in run_folder.read(str(tmp_path), NOW).records] == [path]


def test_locations_do_not_tell_home_folders(tmp_path, monkeypatch):
    path = write_run(tmp_path / "runs" / "demo", "focal", 0)
    absolute = run_folder.read(str(tmp_path / "runs"), NOW).records[0].location
    assert absolute == f"runs/demo/{path.name}"
    monkeypatch.chdir(tmp_path)
    assert run_folder.read("runs/demo", NOW).records[0].location == absolute


@pytest.mark.parametrize(
    "plan",
    ["{", "[]", '{"runs": 3}', '{"runs": [3, {"id": 7}, {"name": "x"}]}'],
    ids=["cut", "list", "no list", "no ids"],
)
def test_a_damaged_plan_is_named(tmp_path, plan):
    write_run(tmp_path, "focal", 0)
    (tmp_path / "sweep.json").write_text(plan)
    found = run_folder.read(str(tmp_path), NOW)
    assert found.expected == []
    assert found.problems and all("sweep.json" in problem for problem in found.problems)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)
KEYS = (
    "id group name study loss model dataset seed attempt created config versions git "
    "status error metrics checkpoint finished runs step val/nll"
)
keys = st.sampled_from(KEYS.split())
objects = st.dictionaries(keys, json_values).map(lambda value: json.dumps(value).encode())


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    files=st.dictionaries(
        st.sampled_from(["run.json", "result.json", "metrics.jsonl", "examples.parquet", "sweep.json"]),
        st.binary(max_size=60) | objects | objects.flatmap(lambda b: st.integers(0, len(b)).map(lambda n: b[:n])),
        min_size=1,
    )
)
def test_no_damage_ever_raises(tmp_path_factory, files):
    from lossbench.report import assemble, writers
    from lossbench.report.errors import NoRunsError

    root = tmp_path_factory.mktemp("fuzz")
    write_run(root, "focal", 0, metrics={"test/em": 0.5})
    (root / "broken").mkdir()
    for name, data in files.items():
        (root / ("" if name == "sweep.json" else "broken") / name).write_bytes(data)
    try:
        report = assemble([root], now=NOW)
    except NoRunsError:
        pytest.fail("the whole run beside it was not found")
    assert any(run.metrics.get("test/em") == 0.5 for run in report.records)
    for writer in writers.choose(["json", "csv", "markdown", "problems"]):
        for text in writer.write(report).values():
            assert isinstance(text, str)
            text.encode("utf-8")


def test_attempts_are_one_history_in_which_the_later_one_counts(tmp_path):
    path = write_run(tmp_path, "focal", 0, history=[{"step": s, "val/nll": 2.0} for s in (3, 4, 5)])
    for attempt, steps in ((1, (1, 2)), (2, (0, 1, 2, 3, 4, 5, 6)), (10, (3, 4))):
        rows = [{"step": step, "val/nll": float(10 * attempt)} for step in steps]
        (path / f"metrics.attempt{attempt}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    history = read(path).read_history(("val/nll",))
    assert history.series["val/nll"] == [(0, 20.0), (1, 20.0), (2, 20.0), (3, 2.0), (4, 2.0), (5, 2.0)]
    assert history.overlap == 8


def test_a_run_without_result_shows_its_last_values(tmp_path):
    run = read(write_run(tmp_path, "focal", 0, status=None))
    assert (run.state, run.metrics) == (State.CRASHED, {})
    assert run.last_values == {"train/cross_entropy": 2.0 / 150, "val/nll": 1.5 / 150}
    assert read(write_run(tmp_path, "focal", 1, metrics={"test/em": 0.5})).last_values == {}


def test_the_page_of_the_run_in_wandb_is_known(tmp_path):
    path = write_run(tmp_path, "focal", 0)
    record = json.loads((path / "run.json").read_text())
    for url, known in (("https://wandb.ai/a/b/runs/c", True), ("javascript:alert(1)", False), (3, False)):
        (path / "run.json").write_text(json.dumps({**record, "wandb": {"url": url}}))
        assert read(path).url == (url if known else None)


def test_what_a_run_notes_about_its_numbers_is_a_remark(tmp_path):
    path = write_run(tmp_path, "focal", 0, metrics={"test/em": 0.5})
    result = json.loads((path / "result.json").read_text())
    for notes, remarks in ((["resumed on\nfewer devices", 3], ("resumed on fewer devices",)), ("no list", ())):
        (path / "result.json").write_text(json.dumps({**result, "notes": notes}))
        assert read(path).problems == remarks
