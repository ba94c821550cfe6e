import os
import subprocess
import sys

import pytest

from lossbench.errors import ConfigError
from lossbench.report import build
from lossbench.report import build as build_report
from lossbench.report.errors import NoRunsError, OutputError
from lossbench.report.records import State

NOW = 1_800_000_000.0
FILES = ["report.csv", "report.html", "report.json", "report.md", "runs.csv"]


def contents(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def test_all_formats_are_written_and_nothing_else(study, tmp_path):
    report = build([study], tmp_path / "new" / "out", now=NOW)
    assert sorted(contents(tmp_path / "new" / "out")) == FILES
    assert (report.expected, report.collection.count(State.FINISHED)) == (9, 8)


def test_two_builds_are_equal_byte_for_byte(study, tmp_path):
    for folder in ("a", "b"):
        build([study], tmp_path / folder, now=NOW)
    assert contents(tmp_path / "a") == contents(tmp_path / "b")


def test_the_order_of_paths_and_the_time_of_the_report_change_nothing(study, tmp_path):
    runs = sorted(path for path in study.iterdir() if path.is_dir())
    build(runs, tmp_path / "a", now=NOW)
    build(runs[::-1], tmp_path / "b", now=NOW + 1e6)
    assert contents(tmp_path / "a") == contents(tmp_path / "b")


def test_only_the_asked_format_is_written(study, tmp_path):
    build([study], tmp_path, formats=["json", "md"], now=NOW)
    assert sorted(contents(tmp_path)) == ["report.json", "report.md"]


def test_an_unknown_format_is_refused_before_any_work(tmp_path):
    with pytest.raises(ConfigError, match=r"'htlm'.*'html'"):
        build([tmp_path], tmp_path / "out", formats=["htlm"])
    assert not (tmp_path / "out").exists()


def test_no_runs_writes_nothing(tmp_path):
    with pytest.raises(NoRunsError):
        build([tmp_path], tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("place", ["file", "file/below"])
def test_an_output_that_is_a_file_is_refused(study, tmp_path, place):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(OutputError, match="cannot be written") as error:
        build([study], tmp_path / place, now=NOW)
    assert error.value.exit_code == 5
    assert (tmp_path / "file").read_text() == "mine"


def test_a_failure_while_writing_leaves_the_old_report(study, tmp_path, monkeypatch):
    build([study], tmp_path / "out", now=NOW)
    before = contents(tmp_path / "out")
    written = []

    def full_disk(path, *args, **kwargs):
        if len(written) == 2:
            raise OSError(28, "No space left on device")
        written.append(path)
        return original(path, *args, **kwargs)

    original = type(tmp_path).write_text
    monkeypatch.setattr(type(tmp_path), "write_text", full_disk)
    with pytest.raises(OutputError, match="No space left on device"):
        build_report([study], tmp_path / "out", baseline="focal", now=NOW)
    monkeypatch.undo()
    assert contents(tmp_path / "out") == before


def test_other_files_in_the_folder_are_left_alone(study, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    build([study], tmp_path, formats=["md"], now=NOW)
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_a_report_imports_nothing_heavy():
    code = "import sys, lossbench.report; print(*[m for m in sys.argv[1:] if m in sys.modules])"
    heavy = ["torch", "numpy", "pandas", "scipy", "matplotlib", "pyarrow", "jinja2", "rich", "wandb"]
    ran = subprocess.run(
        [sys.executable, "-c", code, *heavy], capture_output=True, text=True, check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert ran.stdout.split() == []
