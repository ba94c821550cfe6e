import os
import subprocess
import sys

import pytest

from lossbench.errors import ConfigError
from lossbench.report import Choices, assemble, build
from lossbench.report import build as build_report
from lossbench.report.errors import NoRunsError, OutputError
from lossbench.report.records import State

NOW = 1_800_000_000.0
FILES = [
    "cells.parquet", "pairs.csv", "problems.txt", "report.csv", "report.html", "report.json", "report.md", "report.tex",
    "runs.csv", "runs.parquet",
]  # fmt: skip
QUICK = ["csv", "html", "json", "latex", "markdown", "parquet", "problems", "svg"]  # all but PDF, which takes seconds


def contents(folder):
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def test_all_formats_are_written_and_nothing_else(study, tmp_path):
    report = build([study], tmp_path / "new" / "out", now=NOW)
    written = sorted(contents(tmp_path / "new" / "out"))
    assert [name for name in written if "/" not in name] == FILES
    assert [name for name in written if name.startswith("tables/")] == [
        "tables/tiny-on-arithmetic-differences.tex", "tables/tiny-on-arithmetic.tex"]  # fmt: skip
    kinds = {name.rpartition(".")[2] for name in written if name.startswith("figures/")}
    assert kinds == {"svg", "pdf"}
    assert (report.expected, report.collection.count(State.FINISHED)) == (9, 8)


def test_two_builds_are_equal_byte_for_byte(study, tmp_path):
    for folder in ("a", "b"):
        build([study], tmp_path / folder, QUICK, now=NOW)
    assert contents(tmp_path / "a") == contents(tmp_path / "b")


def test_the_order_of_paths_and_the_time_of_the_report_change_nothing(study, tmp_path):
    runs = sorted(path for path in study.iterdir() if path.is_dir())
    build(runs, tmp_path / "a", QUICK, now=NOW)
    build(runs[::-1], tmp_path / "b", QUICK, now=NOW + 1e6)
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
        build([study], tmp_path / place, ["json"], now=NOW)
    assert error.value.exit_code == 5
    assert (tmp_path / "file").read_text() == "mine"


def test_a_failure_while_writing_leaves_the_old_report(study, tmp_path, monkeypatch):
    build([study], tmp_path / "out", QUICK, now=NOW)
    before = contents(tmp_path / "out")
    written = []

    def full_disk(path, *args, **kwargs):
        if len(written) == 2:
            raise OSError(28, "No space left on device")
        written.append(path)
        return original(path, *args, **kwargs)

    original = type(tmp_path).write_bytes
    monkeypatch.setattr(type(tmp_path), "write_bytes", full_disk)
    with pytest.raises(OutputError, match="No space left on device"):
        build_report([study], tmp_path / "out", QUICK, choices=Choices(baseline="focal"), now=NOW)
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


def test_every_format_is_made_without_wandb_pandas_and_torch(study, tmp_path):
    """As where they are not installed: importing them fails."""
    code = (
        "import sys; sys.modules.update(dict.fromkeys(['wandb', 'pandas', 'torch'])); "
        "from lossbench.report import build; "
        f"build([{str(study)!r}], {str(tmp_path)!r}, {[*QUICK, 'history']!r}, now={NOW})"
    )
    subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert {"report.html", "runs.parquet", "history.parquet", "report.tex"} <= set(contents(tmp_path))


def test_unchanged_runs_leave_the_files_alone(study, tmp_path):
    first = build([study], tmp_path, QUICK, now=NOW, cache=True)
    times = {path: path.stat().st_mtime_ns for path in first.files}
    second = build([study], tmp_path, QUICK, now=NOW, cache=True)
    assert (first.is_fresh, second.is_fresh) == (True, False)
    assert second.files == first.files and second.problems == first.problems
    cells = [[row.cells for table in found.tables for row in table.rows] for found in (first, second.with_tables())]
    assert cells[0] == cells[1]
    assert {path: path.stat().st_mtime_ns for path in second.files} == times


def test_whatever_changes_makes_the_report_again(study, tmp_path):
    import shutil

    runs = tmp_path / "runs"
    shutil.copytree(study, runs)
    folder = next(path for path in sorted(runs.iterdir()) if path.name.startswith("focal"))

    def is_fresh(formats=("json",), **choices):
        return build([runs], tmp_path / "out", formats, Choices(**choices), now=NOW, cache=True).is_fresh

    assert is_fresh() and not is_fresh()
    with (folder / "metrics.jsonl").open("a") as log:
        log.write("{}\n")
    assert is_fresh() and not is_fresh()
    (folder / "examples.parquet").write_bytes(b"damaged")
    assert is_fresh() and not is_fresh()
    assert is_fresh(baseline="focal") and is_fresh()
    (tmp_path / "out" / "report.json").write_text("changed by hand")
    assert is_fresh() and not is_fresh()
    (tmp_path / "out" / ".cache" / "report.json").write_text("{")
    assert is_fresh() and not is_fresh()
    assert is_fresh(("md",))


def test_reports_of_many_figures_make_pdf_when_asked(study, tmp_path, monkeypatch):
    from lossbench.report.writers import pdf

    monkeypatch.setattr(pdf, "MANY", 0)
    monkeypatch.setattr(pdf, "to_pdf", lambda svg: b"%PDF")
    by_default = build([study], tmp_path / "a", now=NOW).files
    asked = build([study], tmp_path / "b", ["pdf"], now=NOW).files
    assert not any(file.suffix == ".pdf" for file in by_default) and any(file.suffix == ".pdf" for file in asked)


def test_the_newest_time_is_that_of_a_running_runs_last_sign_of_life(study):
    from dataclasses import replace

    report = assemble([study], now=NOW)
    assert report.newest == "2026-11-30T16:01:30+00:00"
    alive = replace(report.records[0], state=State.RUNNING, heartbeat="2026-11-30T19:00:00+00:00")
    ended = replace(report.records[0], heartbeat="2026-11-30T20:00:00+00:00")
    for record, newest in ((alive, alive.heartbeat), (ended, report.newest)):
        assert (
            replace(report, collection=replace(report.collection, records=(record, *report.records))).newest == newest
        )
