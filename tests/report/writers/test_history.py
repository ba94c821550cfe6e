import io

import pandas
import pytest

from lossbench.report import assemble, build
from lossbench.report.sources._run_files import read_attempts
from lossbench.report.writers import history
from tests.report.factory import write_run

NOW = 1_800_000_000.0


@pytest.fixture(scope="module")
def rows(report):
    return pandas.read_parquet(io.BytesIO(history.write(report)["history.parquet"]))


def test_every_number_of_every_log_is_a_row(rows, report):
    (run,) = [run for run in report.records if (run.loss, run.seed) == ("focal", 1)]
    of_run = rows[rows.run == run.id]
    assert set(of_run.key) == {"time", "train/cross_entropy", "val/nll"}
    curve = of_run[of_run.key == "val/nll"]
    assert list(zip(curve.step, curve.value, strict=True)) == [(s, 1.5 / s + 1 / 50) for s in range(10, 160, 10)]
    assert set(of_run.loss) == {"focal"} and set(of_run.seed) == {1} and set(of_run.state) == {"finished"}


def test_runs_that_did_not_end_are_there_with_their_state(rows):
    assert {"failed", "crashed", "finished", "invalid"} == set(rows.state)


def test_a_step_that_a_later_attempt_logged_again_is_there_once(tmp_path):
    run = write_run(tmp_path, "focal", 0, history=[{"step": 2, "time": 9.0, "a": 20.0}])
    (run / "metrics.attempt1.jsonl").write_text('{"step": 1, "a": 1.0}\n{"step": 2, "a": 2.0, "b": 5.0}\n')
    found = pandas.read_parquet(io.BytesIO(history.write(assemble([tmp_path], now=NOW))["history.parquet"]))
    of_a = found[found.key == "a"]
    assert list(zip(of_a.step, of_a.value, strict=True)) == [(1, 1.0), (2, 20.0)] and "b" not in set(found.key)


def test_it_is_written_only_when_it_is_asked_for(study, tmp_path):
    by_default = build([study], tmp_path / "a", now=NOW, cache=True).files
    asked = build([study], tmp_path / "a", ["history"], now=NOW, cache=True).files
    assert "history.parquet" not in {file.name for file in by_default}
    assert [file.name for file in asked] == ["history.parquet"]
    every = ["csv", "history", "html", "json", "latex", "markdown", "parquet", "pdf", "problems", "svg"]
    assert "history.parquet" in {file.name for file in build([study], tmp_path / "a", every, now=NOW, cache=True).files}


def test_damage_in_a_log_leaves_the_other_rows(tmp_path):
    run = write_run(tmp_path, "focal", 0)
    (run / "metrics.jsonl").write_text('{"step": 1, "a": 1.0}\n{"step": 2, "a"\n{"step": 3, "a": 3.0}\n')
    assert read_attempts(run, None).series == {"a": [(1, 1.0), (3, 3.0)]}
