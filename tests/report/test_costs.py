import json

import pytest

from lossbench.report import assemble, build, notes
from lossbench.report.costs import cost_table, spent
from tests.report.factory import write_run

NOW = 1_800_000_000.0


def test_costs_are_means_over_finished_seeds(tmp_path):
    for seed, seconds in ((0, 60.0), (1, 80.0)):
        costs = {"time/train_s": seconds, "perf/peak_memory_mb": 2.0, "perf/gpu_hours": seconds / 3600}
        write_run(tmp_path, "focal", seed, metrics={"test/em": 0.5, **costs})
    write_run(tmp_path, "focal", 2, status="failed")
    found = cost_table(assemble([tmp_path], now=NOW).tables[0])
    assert [metric.name for metric in found.metrics] == ["time/train_s", "perf/peak_memory_mb", "perf/gpu_hours"]
    assert found.rows[0].means == pytest.approx((70.0, 2.0, 70 / 3600))


def test_no_costs_are_no_table(tmp_path):
    write_run(tmp_path, "focal", 0, metrics={"test/em": 0.5})
    assert cost_table(assemble([tmp_path], now=NOW).tables[0]) is None


def test_what_failed_runs_took_is_told_apart(tmp_path):
    for seed, status in ((0, "finished"), (1, "failed"), (2, "failed")):
        metrics = {"test/em": 0.5, "perf/gpu_hours": 0.5} if status == "finished" else None
        write_run(tmp_path, "focal", seed, metrics=metrics, status=status)  # each of them took 90 seconds
    report = assemble([tmp_path], now=NOW)
    found = spent(report.records)
    assert (found.runs, found.unused_runs) == (3, 2)
    assert (found.hours, found.unused_hours) == pytest.approx((270 / 3600, 180 / 3600))
    assert (found.gpu_hours, found.unused_gpu_hours) == (0.5, None)
    assert "3.0 minutes by 2 runs not in the tables" in notes.spent_words(report)


def test_every_experiment_says_what_it_cost_and_what_of_it_is_in_no_mean(tmp_path):
    for dataset, failed in (("gsm8k", 1), ("mathqa", 0)):
        for seed in range(3):
            status = "failed" if seed < failed else "finished"
            metrics = {"test/em": 0.5, "time/train_s": 60.0} if status == "finished" else None
            write_run(tmp_path / "runs", "focal", seed, metrics=metrics, status=status, dataset=dataset)
    report = build([tmp_path / "runs"], tmp_path / "out", ["html", "md", "json"], now=NOW)
    first, second = (notes.spent_words(report, table) for table in report.tables)
    assert first == "Spent in all: 4.5 minutes by 3 runs; of these 1.5 minutes by 1 run not in the table."
    assert second == "Spent in all: 4.5 minutes by 3 runs, all of them in the table."
    everything = notes.spent_words(report)
    assert "9.0 minutes by 6 runs; of these 1.5 minutes by 1 run not in the tables" in everything
    for name in ("report.html", "report.md"):
        text = (tmp_path / "out" / name).read_text()
        assert all(sentence in text for sentence in (first, second, everything)), name
    tree = json.loads((tmp_path / "out" / "report.json").read_text())
    assert [table["spent"]["unused_runs"] for table in tree["tables"]] == [1, 0]
    assert tree["spent"]["hours"] == pytest.approx(540 / 3600)
