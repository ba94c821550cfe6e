import json

from lossbench.report.writers import json as writer
from tests.report.conftest import HOSTILE


def refuse(word):
    raise AssertionError(f"{word} is not strict JSON")


def test_the_file_is_strict_json_with_every_number(report):
    tree = json.loads(writer.write(report)["report.json"], parse_constant=refuse)
    assert (tree["schema"], tree["expected"], tree["has_plan"]) == (1, 9, True)
    assert tree["states"] == {"finished": 8, "failed": 1, "crashed": 1, "invalid": 1, "missing": 1}
    (table,) = tree["tables"]
    cells = {row["loss"]: row["cells"] for row in table["rows"]}
    focal = cells["focal"]["test/em"]
    assert focal["values"] == {"0": 0.50, "1": 0.53, "2": 0.51}
    assert focal["comparison"]["test"] == "paired t"
    assert cells["focal"]["test/ppl"]["comparison"]["kind"] == "ratio"
    assert cells["lovasz"]["test/em"]["absent"] == {"failed": 1, "missing": 1}
    assert cells[HOSTILE]["val/nll"]["n"] == 1


def test_runs_behind_a_row_can_be_named(report):
    tree = json.loads(writer.write(report)["report.json"])
    runs = {run["id"]: run for run in tree["runs"]}
    for row in tree["tables"][0]["rows"]:
        assert [runs[run]["loss"] for run in row["runs"]] == [row["loss"]] * 3
    assert sum(run["metrics"].get("val/nll") == "NaN" for run in runs.values()) == 1
