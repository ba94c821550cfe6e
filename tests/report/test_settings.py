from lossbench.report import assemble
from lossbench.report.settings import loss_parameters, settings_table
from tests.report.factory import write_run

NOW = 1_800_000_000.0


def test_rows_that_differ_in_the_loss_alone_have_no_columns(tmp_path):
    for loss in ("focal", "emo"):
        write_run(tmp_path, loss, 0, metrics={"test/em": 0.5})
    found = settings_table(assemble([tmp_path], now=NOW).tables[0])
    assert found.keys == () and [row[0] for row in found.rows] == ["emo", "focal"]


def test_another_setting_is_a_column(tmp_path):
    write_run(tmp_path, "focal", 0, metrics={"test/em": 0.5})
    write_run(tmp_path, "emo", 0, metrics={"test/em": 0.5}, config={"trainer": {"max_steps": 300}, "extra": 1})
    found = settings_table(assemble([tmp_path], now=NOW).tables[0])
    assert found.keys == ("extra", "trainer.max_steps")
    assert [row[2] for row in found.rows] == [("1", "300"), ("—", "150")]


def test_a_mixture_is_spelled_as_a_sum():
    flat = {
        "loss.terms.cross_entropy.weight": 0.6, "loss.terms.cross_entropy.scope": "sequence",
        "loss.terms.focal.weight": 0.4, "loss.terms.focal.scope": "answer", "loss.terms.focal.gamma": 2.0,
    }  # fmt: skip
    assert loss_parameters(flat) == "0.6 cross_entropy [sequence] + 0.4 focal(gamma=2.0)"
    assert loss_parameters({"loss.terms.mae.weight": 1.0}) == "mae" and loss_parameters({}) == ""


def test_a_huge_value_is_cut(tmp_path):
    write_run(tmp_path, "focal", 0, metrics={"test/em": 0.5}, config={"notes": "x" * 2_000_000})
    write_run(tmp_path, "emo", 0, metrics={"test/em": 0.5}, config={"notes": "y"})
    report = assemble([tmp_path], now=NOW)
    found = settings_table(report.tables[0])
    assert max(len(value) for row in found.rows for value in row[2]) <= 80
    assert any("configuration has 2.0 MB" in problem for _, problem in report.problems)
