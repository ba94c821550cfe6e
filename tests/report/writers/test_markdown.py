import re

from lossbench.report.writers import markdown


def test_the_table_shows_marks_and_gaps(report):
    text = markdown.write(report)["report.md"]
    assert "| focal | 3/3 | **51.3** ± 1.5" in text
    assert "| cross\\_entropy (baseline) | 3/3 | <u>42.0</u> ± 2.0" in text
    assert "| lovasz | 1/3: 1 failed, 1 missing | 61.0 (1/3)" in text


def test_every_row_has_the_cells_of_its_header(report):
    columns = None
    for line in markdown.write(report)["report.md"].splitlines():
        if not line.startswith("|"):
            columns = None
            continue
        count = len(re.findall(r"(?<!\\)\|", line))
        assert count == (columns or count)
        columns = count


def test_names_are_shown_as_they_are():
    assert markdown.escape("<b>|_*`x`\n[y]&") == "&lt;b&gt;\\|\\_\\*\\`x\\` \\[y\\]&amp;"


def test_nothing_of_a_run_is_html(report):
    text = markdown.write(report)["report.md"]
    assert set(re.findall(r"<[^>]*>", text)) <= {"<u>", "</u>"}
