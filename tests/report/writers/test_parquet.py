import io

import pandas
import pytest

from lossbench.report.writers import parquet
from tests.report.conftest import EM


@pytest.fixture(scope="module")
def tables(report):
    return {name: pandas.read_parquet(io.BytesIO(data)) for name, data in parquet.write(report).items()}


def test_cells_keep_their_types_and_full_precision(tables, report):
    cells = tables["cells.parquet"].set_index(["loss", "metric"])
    found = report.tables[0].rows[2].cells[0]
    row = cells.loc[("focal", "test/em")]
    assert (row["mean"], row["sd"], row["p_holm"]) == (found.mean, found.sd, found.comparison.p_holm)
    assert row["n"] == 3 and pandas.isna(cells.loc[("lovasz", "test/em")]["sd"])


def test_runs_have_a_column_a_metric(tables, report):
    runs = tables["runs.parquet"]
    assert len(runs) == len(report.records)
    found = runs[(runs.loss == "focal") & (runs.seed == 1)].iloc[0]
    assert found["test/em"] == EM["focal"][1] and found["state"] == "finished"
    assert set(runs["state"]) == {str(record.state) for record in report.records}


def test_the_same_report_gives_the_same_bytes(report):
    assert parquet.write(report) == parquet.write(report)
