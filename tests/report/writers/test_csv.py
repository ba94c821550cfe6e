import csv
import io

import pytest

from lossbench.report.writers import csv as writer
from tests.report.conftest import EM, HOSTILE


@pytest.fixture(scope="module")
def files(report):
    return {name: list(csv.DictReader(io.StringIO(text))) for name, text in writer.write(report).items()}


def test_one_row_a_cell_in_full_precision(files, report):
    rows = {(row["loss"], row["metric"]): row for row in files["report.csv"]}
    assert len(rows) == 4 * 4
    row = rows["focal", "test/em"]
    assert [float(value) for value in row["values"].split()] == list(EM["focal"].values())
    cell = report.tables[0].rows[2].cells[0]
    assert (float(row["mean"]), float(row["sd"]), float(row["low"])) == (cell.mean, cell.sd, cell.low)
    assert float(row["p_holm"]) == cell.comparison.p_holm


def test_one_row_a_run_with_every_metric(files, report):
    rows = files["runs.csv"]
    assert len(rows) == len(report.records)
    by_run = {(row["loss"], row["seed"]): row for row in rows}
    assert float(by_run["focal", "1"]["test/em"]) == 0.53
    assert by_run[HOSTILE, "1"]["val/nll"] == "NaN"
    assert by_run["lovasz", "2"]["state"] == "missing"


def test_names_survive_the_round_trip(files):
    assert HOSTILE in {row["loss"] for row in files["report.csv"]}
