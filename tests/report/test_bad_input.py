"""What bad input gets: a test for every row of the table in docs/report.md, or the names of those elsewhere."""

import ast
import json
import math
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lossbench.cli import main
from lossbench.errors import ConfigError
from lossbench.report import Choices, assemble, build
from lossbench.report.errors import NoRunsError
from lossbench.report.records import State
from lossbench.report.table import build_tables
from tests.report.factory import answers, write_plan, write_run

NOW = 1_800_000_000.0
TESTS = Path(__file__).parent
# Rows about single sources, each tested beside its source.
ELSEWHERE = {
    "unreadable, truncated or corrupt log": [
        "sources/test_wandb_log.py::test_every_cut_keeps_the_records_before_it",
        "sources/test_wandb_log.py::test_rows_around_damage_are_kept_and_its_byte_is_named",
        "sources/test_wandb_log.py::test_no_damage_raises_or_invents_a_row",
        "sources/test_run_folder.py::test_rows_around_damage_are_kept",
    ],
    "7-byte log": ["sources/test_wandb_log.py::test_a_log_of_a_header_alone_is_empty_and_listed_by_its_name"],
    "not a wandb log": ["sources/test_wandb_log.py::test_a_file_that_is_no_log_is_named_and_skipped"],
    "log still growing": [
        "sources/test_run_folder.py::test_a_log_that_is_being_written_is_no_problem",
        "sources/test_wandb_log.py::test_every_cut_keeps_the_records_before_it",
    ],
    "several attempts of one id": [
        "sources/test_run_folder.py::test_attempts_are_one_history_in_which_the_later_one_counts",
        "sources/test_wandb_log.py::test_attempts_of_one_run_are_put_together",
    ],
    "API 401, 403, 404": [
        "sources/test_wandb_api.py::test_a_refusal_names_host_and_project_and_never_the_key",
        "sources/test_wandb_api.py::test_a_wrong_key_and_an_absent_project_are_refusals",
    ],
    "API 429, 5xx, timeouts": [
        "sources/test_wandb_api.py::test_a_passing_fault_costs_time_and_nothing_else",
        "sources/test_wandb_api.py::test_an_outage_leaves_what_was_known_and_local_runs",
    ],
    "pages repeat or omit runs": ["sources/test_wandb_api.py::test_pages_that_repeat_and_omit_runs_are_repaired"],
    "run deleted meanwhile": ["sources/test_wandb_api.py::test_a_run_that_is_deleted_meanwhile_is_missing"],
    "broken summary of one run": ["sources/test_wandb_api.py::test_one_broken_summary_spoils_one_run"],
    "wandb or pandas absent": [
        "sources/test_wandb_log.py::test_a_report_reads_logs_without_wandb_and_torch",
        "test_build.py::test_every_format_is_made_without_wandb_pandas_and_torch",
        "sources/test_wandb_log.py::test_a_file_that_is_no_log_is_named_and_skipped",
    ],
    "two sources disagree": ["test_collect.py::test_sources_that_contradict_each_other_leave_no_value_to_use"],
    "example ids differ": ["test_checkpoints.py::test_other_example_ids_are_not_compared_and_counted"],
    "unwritable folder, disk full": [
        "test_build.py::test_an_output_that_is_a_file_is_refused",
        "test_build.py::test_a_failure_while_writing_leaves_the_old_report",
    ],
    "damaged later evaluation": ["test_evaluations.py::test_damage_is_named_and_the_run_is_used"],
    "a plan's baseline that no run has": [
        "test_table.py::test_plans_that_disagree_or_name_no_loss_of_theirs_are_not_followed_and_it_is_said"
    ],
    "huge configuration": [
        "test_settings.py::test_a_huge_value_is_cut",
        "writers/test_html.py::test_a_huge_configuration_stays_out_of_the_page_and_its_size_is_said",
    ],
    "names with markup": [
        "writers/test_html.py::test_names_from_runs_are_inert",
        "writers/test_latex.py::test_everything_is_ascii_and_names_are_inert",
        "writers/test_csv.py::test_names_survive_the_round_trip",
        "writers/test_figure_files.py::test_text_of_runs_is_inert_in_files",
        "test_terminal.py::test_names_are_no_markup",
    ],
}  # fmt: skip


@pytest.mark.parametrize("row", ELSEWHERE)
def test_rows_that_are_tested_elsewhere_are_tested(row):
    for place in ELSEWHERE[row]:
        file, _, name = place.partition("::")
        tree = ast.parse((TESTS / file).read_text())
        assert name in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}, place


def command(monkeypatch, capsys, *arguments):
    """(exit code, what was said) of the `lossbench` command."""
    monkeypatch.setattr("sys.argv", ["lossbench", *map(str, arguments)])
    with pytest.raises(SystemExit) as end:
        main()
    said = capsys.readouterr()
    return end.value.code or 0, said.out + said.err


def test_no_runs_say_where_it_looked_and_how_many_files_it_saw(tmp_path, monkeypatch, capsys):
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "notes.txt").write_text("nothing")
    code, said = command(monkeypatch, capsys, "report", tmp_path / "runs", "--out", tmp_path / "out")
    assert code == 2 and "No runs found: looked in" in said and "(1 file)" in said


@pytest.mark.parametrize("value", [math.nan, math.inf, "NaN", "Infinity"])
def test_values_that_are_no_numbers_are_counted_and_enter_no_mean(tmp_path, value):
    for seed in range(2):
        write_run(tmp_path, "focal", seed, metrics={"test/em": 0.5})
    write_run(tmp_path, "focal", 2, metrics={"test/em": value})
    report = assemble([tmp_path], now=NOW)
    cell = report.tables[0].rows[0].cells[0]
    assert (cell.n, cell.mean, cell.absence) == (2, 0.5, "1 invalid")
    assert report.records[2].state is State.INVALID


def test_metrics_that_are_objects_get_advice_and_others_a_line(tmp_path):
    write_run(
        tmp_path, "focal", 0, metrics={"test/em": {"max": 0.5, "last": 0.4}, "a": [1], "b": "x", "c": True, "d": 1}
    )
    report = assemble([tmp_path], now=NOW)
    said = " ".join(problem for _, problem in report.problems)
    assert "test/em/max" in said
    assert all(f"Metric {name} is" in said for name in "abc") and set(report.records[0].metrics) == {"d"}


@pytest.mark.parametrize("name, value", [("test/em", 1.2), ("test/ppl", 0.3), ("test/em", -0.1)])
def test_values_out_of_bounds_are_invalid_and_named(tmp_path, name, value):
    write_run(tmp_path, "focal", 0, metrics={name: value})
    (record,) = assemble([tmp_path], now=NOW).records
    assert record.state is State.INVALID and f"{name} is {value:g}" in " ".join(record.problems)


def test_per_cent_gets_a_hint_and_no_silent_division(tmp_path):
    for seed in range(2):
        write_run(tmp_path, "focal", seed, metrics={"test/em": 40.0 + seed})
    report = assemble([tmp_path], now=NOW)
    assert "looks like per cent" in " ".join(problem for _, problem in report.problems)
    assert report.tables[0].rows[0].cells[0].mean is None


def test_a_metric_that_some_runs_lack_is_incomplete_and_strict_refuses(tmp_path, monkeypatch, capsys):
    write_run(tmp_path / "s", "focal", 0, metrics={"test/em": 0.5, "test/ppl": 2.0})
    write_run(tmp_path / "s", "focal", 1, metrics={"test/em": 0.5})
    assert [r.state for r in assemble([tmp_path / "s"], now=NOW).records] == [State.FINISHED, State.INCOMPLETE]
    arguments = ("report", tmp_path / "s", "--out", tmp_path / "out", "--format", "json")
    assert command(monkeypatch, capsys, *arguments)[0] == 0
    code, said = command(monkeypatch, capsys, *arguments, "--strict")
    assert code == 3 and "1 incomplete" in said and (tmp_path / "out" / "report.json").is_file()


def test_two_runs_of_one_group_and_seed_are_never_averaged(tmp_path):
    write_run(tmp_path, "focal", 0, metrics={"test/em": 0.1}, finished="2026-11-01T00:00:00+00:00")
    write_run(tmp_path, "focal", 0, metrics={"test/em": 0.9}, folder="copy", finished="2026-11-02T00:00:00+00:00")
    report = assemble([tmp_path], now=NOW)
    cell = report.tables[0].rows[0].cells[0]
    assert (cell.mean, cell.n) == (0.9, 1)
    assert [r.state for r in report.records].count(State.DUPLICATE) == 1
    assert "used instead" in " ".join(problem for _, problem in report.problems)


def test_one_loss_with_two_configurations_is_two_rows_with_their_differences(tmp_path):
    write_run(tmp_path, "focal", 0, metrics={"test/em": 0.5}, created="2026-11-01T00:00:00+00:00")
    write_run(tmp_path, "focal", 0, metrics={"test/em": 0.6}, config={"trainer": {"max_steps": 300}})
    first, second = assemble([tmp_path], now=NOW).variants
    assert (first.label, second.label) == ("focal", "focal#2")
    assert second.differs == (("trainer.max_steps", "150", "300"),)


def test_rows_can_be_named_by_a_setting(tmp_path):
    for lr in (0.1, 0.2):
        for seed in range(2):
            write_run(tmp_path, "focal", seed, metrics={"test/em": lr + seed / 100}, config={"optimizer": {"lr": lr}})
    (table,) = assemble([tmp_path], Choices(group_by=("optimizer.lr",)), now=NOW).tables
    assert [(row.label, row.cells[0].n) for row in table.rows] == [
        ("focal [optimizer.lr=0.1]", 2), ("focal [optimizer.lr=0.2]", 2)]  # fmt: skip
    with pytest.raises(ConfigError, match=r"no run has the setting 'optimiser.lr'.*'optimizer.lr'"):
        assemble([tmp_path], Choices(group_by=("optimiser.lr",)), now=NOW)


def test_seeds_that_differ_get_welchs_test_and_it_is_said(tmp_path):
    for loss, seeds in (("cross_entropy", (0, 1, 2)), ("focal", (0, 1, 2)), ("emo", (7, 8, 9))):
        for seed in seeds:
            write_run(tmp_path, loss, seed, metrics={"test/em": 0.4 + len(loss) * (seed * seed % 7) / 100})
    (table,) = assemble([tmp_path], now=NOW).tables
    methods = {row.label: row.cells[0].comparison.difference.method for row in table.rows if row.cells[0].comparison}
    assert methods == {"focal": "paired t", "emo": "Welch t"}
    page = build([tmp_path], tmp_path / "out", ["html"], now=NOW).files[0].read_text()
    assert "paired t, 3 pairs" in page and "Welch t, 3 and 3 seeds" in page


def test_one_seed_and_no_variance_have_neither_interval_nor_mark(tmp_path):
    for seed in range(3):
        write_run(tmp_path, "cross_entropy", seed, metrics={"test/em": 0.4})
        write_run(tmp_path, "focal", seed, metrics={"test/em": 0.5})
    write_run(tmp_path, "emo", 0, metrics={"test/em": 0.9})
    (table,) = assemble([tmp_path], now=NOW).tables
    cells = {row.label: row.cells[0] for row in table.rows}
    assert cells["focal"].comparison.difference.note == "no variance between seeds"
    assert (cells["focal"].comparison.p_holm, cells["focal"].comparison.verdict) == (None, None)
    assert (cells["emo"].sd, cells["emo"].low, cells["emo"].mark) == (None, None, None)


def test_an_absent_baseline_names_the_known_ones(tmp_path, monkeypatch, capsys):
    write_run(tmp_path / "s", "focal", 0, metrics={"test/em": 0.5})
    code, said = command(monkeypatch, capsys, "report", tmp_path / "s", "--out", tmp_path / "o", "--baseline", "focl")
    assert code == 2 and "'focl' is no loss of these runs" in said and "'focal'" in said
    assert not (tmp_path / "o").exists()


@pytest.mark.parametrize(
    "option, value, near",
    [
        ("--metrics", "test/en", "test/em"), ("--where", "tset/em>0", "test/em"), ("--sort", "test/en", "test/em"),
        ("--include", "runing", "running"), ("--explain", "focal:test/en", "test/em"), ("--paper", "em", "emo"),
        ("--format", "htm", "html"),
    ],
)  # fmt: skip
def test_unknown_names_are_answered_with_the_nearest(tmp_path, monkeypatch, capsys, option, value, near):
    write_run(tmp_path / "s", "focal", 0, metrics={"test/em": 0.5})
    code, said = command(monkeypatch, capsys, "report", tmp_path / "s", "--out", tmp_path / "o", option, value)
    assert code == 2 and repr(near) in said


def test_strict_passes_a_whole_study_and_refuses_a_missing_run(tmp_path, monkeypatch, capsys):
    write_plan(tmp_path / "s", ["focal"], [0])
    write_run(tmp_path / "s", "focal", 0, metrics={"test/em": 0.5})
    arguments = ("report", tmp_path / "s", "--out", tmp_path / "out", "--format", "json", "--strict")
    assert command(monkeypatch, capsys, *arguments)[0] == 0
    write_plan(tmp_path / "s", ["focal"], [0, 1])
    code, said = command(monkeypatch, capsys, *arguments)
    assert code == 3 and "1 missing" in said


def test_a_service_that_gave_a_part_is_incomplete_everywhere_and_strict_refuses(report):
    from dataclasses import replace

    from lossbench.report.writers import html, markdown

    said = "wandb at example did not answer within 300 s; what is shown was known before."
    partial = replace(report, collection=replace(report.collection, incomplete=(said,)))
    assert said in partial.lacks and ("", said) in partial.problems
    assert said in html.write(partial)["report.html"] and said in markdown.write(partial)["report.md"]


def test_a_run_that_goes_on_is_shown_only_where_asked_and_counts_nowhere(tmp_path):
    for seed in range(2):
        write_run(tmp_path, "focal", seed, metrics={"test/em": 0.5, "val/nll": 0.3 + seed / 10})
    write_run(tmp_path, "focal", 2, status=None, age=10.0, history=[{"step": 5, "time": 1.0, "val/nll": 0.9}])
    for include, expected in (((), ()), ((State.RUNNING,), ((2, 0.9),))):
        report = assemble([tmp_path], Choices(include=include), now=NOW)
        (cell,) = [c for c in report.tables[0].rows[0].cells if c.metric.name == "val/nll"]
        assert (cell.provisional, cell.n, cell.mean) == (expected, 2, pytest.approx(0.35))
        page = build([tmp_path], tmp_path / "out", ["html"], Choices(include=include), now=NOW).files[0].read_text()
        assert ("seed 2 so far: 0.9000" in page) == bool(include)


def test_nothing_that_a_run_can_be_named_breaks_a_format(tmp_path):
    names = ["|", "_", "&", "<b>", "two\nlines", "😀", "\\", "$x$", "%", "#1", "", "../../x", '"', "'", "\x1b[31m"]
    for number, name in enumerate(names):
        write_run(tmp_path / "s", name, 0, metrics={"test/em": 0.5}, folder=f"run{number}", examples=answers(2))
    formats = ["csv", "html", "json", "latex", "markdown", "parquet", "problems", "svg"]
    report = build([tmp_path / "s"], tmp_path / "out", formats, now=NOW)
    assert len(report.tables[0].rows) >= len(names) - 1
    assert all(file.resolve().is_relative_to(tmp_path / "out") for file in report.files)
    tree = json.loads((tmp_path / "out" / "report.json").read_text())
    assert len(tree["runs"]) == len(names)


def test_a_study_of_missing_runs_alone_is_a_report(tmp_path):
    write_plan(tmp_path, ["focal", "emo"], [0, 1])
    report = build([tmp_path], tmp_path / "out", ["html", "latex", "markdown", "json"], now=NOW)
    assert report.lacks == ["4 missing"]


def test_an_empty_place_raises_and_leaves_the_old_report(tmp_path):
    write_run(tmp_path / "s", "focal", 0, metrics={"test/em": 0.5})
    (file,) = build([tmp_path / "s"], tmp_path / "out", ["json"], now=NOW).files
    before = file.read_bytes()
    with pytest.raises(NoRunsError):
        build([tmp_path / "nothing"], tmp_path / "out", ["json"], now=NOW)
    assert file.read_bytes() == before


def test_rows_are_sorted_by_a_column_below_the_baseline(tmp_path):
    for loss, em in (("cross_entropy", 0.1), ("a", 0.3), ("b", 0.5), ("c", 0.4)):
        write_run(tmp_path, loss, 0, metrics={"test/em": em, "test/ppl": 1 + em})
    order = {
        sort: [row.label for row in assemble([tmp_path], Choices(sort=sort), now=NOW).tables[0].rows]
        for sort in (None, "name", "test/em", "test/ppl")
    }
    assert order[None] == order["name"] == ["cross_entropy", "a", "b", "c"]
    assert order["test/em"] == ["cross_entropy", "b", "c", "a"]
    assert order["test/ppl"] == ["cross_entropy", "a", "c", "b"]


def test_an_explanation_writes_nothing(tmp_path):
    write_run(tmp_path / "s", "focal", 0, metrics={"test/em": 0.5})
    from lossbench.cli import app

    arguments = ["report", str(tmp_path / "s"), "--out", str(tmp_path / "out"), "--explain", "focal:test/em"]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0 and "seed 0: 0.5" in done.output and not (tmp_path / "out").exists()


def test_no_variants_are_no_tables():
    assert build_tables([], []) == []
