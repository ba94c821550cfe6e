from lossbench.report.terminal import render
from tests.report.conftest import HOSTILE


def test_the_table_shows_numbers_and_what_is_absent(report):
    text = render(report, width=140)
    assert "42.0' ± 2.0" in text
    assert "51.3* ± 1.5" in text
    assert "1 failed" in text and "1 missing" in text
    assert "9 runs expected: 8 finished" in text
    assert HOSTILE in text


def test_lines_fit_the_terminal(report):
    for width in (60, 100):
        assert max(len(line) for line in render(report, width).splitlines()) <= width


def test_a_table_of_many_columns_goes_on_below_with_its_losses(tmp_path):
    from lossbench.report import assemble
    from lossbench.report.choices import Choices
    from tests.report.factory import write_run

    names = tuple(f"test/metric{number}" for number in range(9))
    write_run(tmp_path, "focal", 0, metrics={name: 0.5 for name in names})
    report = assemble([tmp_path], Choices(metrics=names), now=1_800_000_000.0)
    text = render(report, 80)
    assert all(name in text for name in names)  # no name is broken
    assert text.count("focal") == 3 and text.count("tiny on arithmetic") == 1
    assert max(map(len, text.splitlines())) <= 80


def test_where_the_files_lie_is_said(study, tmp_path):
    from lossbench.report import build

    report = build([study], tmp_path, formats=["html", "json"], now=1_800_000_000.0)
    assert f"Report: {tmp_path / 'report.html'} (beside it: report.json)" in render(report)


def test_names_are_no_markup(tmp_path):
    from lossbench.report import assemble
    from tests.report.factory import write_run

    write_run(tmp_path, "[bold]x[/bold]", 0, metrics={"test/em": 0.5})
    assert "[bold]x[/bold]" in render(assemble([tmp_path], now=1_800_000_000.0), 120)


def test_an_unchanged_report_is_printed_as_before(study, tmp_path):
    from lossbench.report import build

    first, second = (build([study], tmp_path, ["json"], now=1_800_000_000.0, cache=True) for _ in range(2))
    assert not second.is_fresh and second.printed
    for width in (second.printed[0], 60):  # another width than that of the terminal: the tables are laid out again
        before = render(first, width).splitlines()
        assert [line.replace(" (unchanged)", "") for line in render(second, width).splitlines()] == before
