import math
from pathlib import Path

import pytest

from lossbench.report import build
from lossbench.report.collect import collect
from lossbench.report.records import State
from lossbench.report.sources import csv_file
from tests.report.factory import write_plan, write_run

NOW = 1_800_000_000.0
HEAD = "id,name,loss,model,dataset,seed,state,test/em,val/nll\n"
NUMBERS = {"test/em": 0.5, "val/nll": 0.1 + 0.2}


def read(file: Path, text: str):
    file.write_text(text, encoding="utf-8")
    return csv_file.read(str(file), NOW)


def test_a_report_of_a_report_has_the_same_runs(tmp_path: Path):
    study = tmp_path / "demo"
    write_plan(study, ["focal", "lovasz"], [0, 1, 2])
    for seed in range(2):
        write_run(study, "focal", seed, metrics={**NUMBERS, "test/em": 0.5 + seed / 7})
    write_run(study, "lovasz", 0, metrics={**NUMBERS, "test/em": math.nan})
    write_run(study, "lovasz", 1, status="failed", error={"type": "DivergedError", "message": 'a "b", c\nd'})
    build([study], tmp_path / "first", ["csv"], now=NOW)
    again = collect([tmp_path / "first" / "runs.csv"], NOW)
    before = collect([study], NOW)
    assert again.has_plan
    for old, new in zip(before.records, again.records, strict=True):
        for field in (
            "id",
            "name",
            "study",
            "loss",
            "model",
            "dataset",
            "seed",
            "state",
            "created",
            "error",
            "planned",
        ):
            assert getattr(new, field) == getattr(old, field), field
        assert new.metrics.keys() == old.metrics.keys()
        assert all(math.isnan(new.metrics[k]) or new.metrics[k] == old.metrics[k] for k in old.metrics)
        assert new.source == ("csv" if new.state is not State.MISSING else new.source)


def test_a_row_that_does_not_fit_is_named_and_the_others_are_read(tmp_path: Path):
    found = read(
        tmp_path / "runs.csv",
        HEAD
        + "a,,focal,tiny,arithmetic,0,finished,0.5,0.25\n"
        + "b,,focal,tiny\n"
        + ",,focal,tiny,arithmetic,0,finished,0.5,0.25\n"
        + "c,,focal,tiny,arithmetic,zero,victorious,fast,NaN\n",
    )
    assert [record.id for record in found.records] == ["a", "c"]
    assert [problem.split(" ", 1)[1].split(";")[0] for problem in found.problems] == [
        "line 3 has another number of cells than the header", "line 4 has no id",
    ]  # fmt: skip
    good, odd = found.records
    assert (good.metrics, good.state, good.seed, good.problems) == (
        {"test/em": 0.5, "val/nll": 0.25},
        State.FINISHED,
        0,
        (),
    )
    assert (odd.state, odd.seed, list(odd.metrics)) == (State.INVALID, None, ["val/nll"])
    assert len(odd.problems) == 3


def test_another_table_is_no_source(tmp_path: Path):
    found = read(tmp_path / "prices.csv", "product,price\ntea,3\n")
    assert found.records == []
    assert "no runs.csv of a report: it has no column id, loss, seed, state" in found.problems[0]


@pytest.mark.parametrize("text", ["", "\x00", HEAD, HEAD + '"', HEAD + '"a\n\n', HEAD + "a,\x00,b", "\ufeff" + HEAD])
def test_no_text_raises(tmp_path: Path, text: str):
    assert read(tmp_path / "runs.csv", text).records == []


def test_a_table_beside_its_runs_adds_nothing(tmp_path: Path):
    study = tmp_path / "demo"
    write_run(study, "focal", 0, metrics=NUMBERS)
    build([study], tmp_path / "first", ["csv"], now=NOW)
    (record,) = collect([study, tmp_path / "first" / "runs.csv"], NOW).records
    assert (record.source, record.also_in, record.state) == ("run folder", ("csv",), State.FINISHED)
