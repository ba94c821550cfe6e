import pytest

from lossbench.errors import ConfigError
from lossbench.report import assemble
from lossbench.report.explain import explain
from tests.report.conftest import HOSTILE
from tests.report.factory import write_run

NOW = 1_800_000_000.0


def test_every_run_behind_a_number_is_named(report):
    text = explain(report.tables, "focal:test/em")
    for seed, value in ((0, 0.5), (1, 0.53), (2, 0.51)):
        assert f"seed {seed}: {value!r}" in text
    assert text.count("used") == 3 and "focal-tiny-arithmetic-s1" in text
    assert "mean of 3: 0.5133333333333333, printed as 51.3 %" in text
    assert "paired t, p = 0.0" in text and "Marked as best" in text


def test_runs_that_do_not_count_say_why(report):
    text = explain(report.tables, "lovasz:test/em")
    assert "not used: failed" in text and "not used: missing" in text and "not found" in text
    assert "One seed has no deviation" in text and "no test: no test with one seed" in text
    assert "not used: not a possible value" in explain(report.tables, f"{HOSTILE}:val/nll")


def test_perplexity_says_how_it_is_averaged(report):
    assert "exp of the mean of the logarithms" in explain(report.tables, "focal:test/ppl")


def test_one_of_several_tables_can_be_named(tmp_path):
    for dataset in ("arithmetic", "pydocs"):
        write_run(tmp_path, "focal", 0, metrics={"test/em": 0.5}, dataset=dataset)
    tables = assemble([tmp_path], now=NOW).tables
    assert explain(tables, "focal:test/em").count("tiny on") == 2
    assert explain(tables, "focal:test/em:tiny:pydocs").count("tiny on") == 1
    with pytest.raises(ConfigError, match=r"no table 'tiny:pydoc'.*'tiny:pydocs'"):
        explain(tables, "focal:test/em:tiny:pydoc")


@pytest.mark.parametrize(
    "asked, said",
    [
        ("focal", "names no cell"),
        ("focl:test/em", "no row 'focl'.*'focal'"),
        ("focal:test/emm", "no column 'test/emm'"),
    ],
)
def test_a_cell_that_is_not_there_is_refused(report, asked, said):
    with pytest.raises(ConfigError, match=said) as error:
        explain(report.tables, asked)
    assert error.value.exit_code == 2
