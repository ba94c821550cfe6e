from lossbench.report import assemble, notes
from tests.report.factory import write_run

NOW = 1_800_000_000.0


def test_what_was_expected_and_found_is_said(report):
    text = " ".join(notes.method(report))
    assert "The sweep plan expects 9 runs; 8 of them were found. 3 runs found beside the plan" in text
    assert "chosen by validation cross-entropy (val/nll)" in text
    assert "at least 2.48 standard deviations" in text


def test_without_a_plan_nothing_is_said_to_be_complete(tmp_path):
    write_run(tmp_path, "focal", 0, metrics={"test/em": 0.5})
    text = " ".join(notes.method(assemble([tmp_path], now=NOW)))
    assert "No sweep plan was found, so what is missing is not known" in text
    assert "standard deviations of the seed-wise" not in text
