import math

import numpy as np
import pytest

from lossbench.evaluation.calibration import expected_calibration_error
from lossbench.report import assemble
from tests.report.factory import write_run

NOW = 1_800_000_000.0


def rows(seed, n=50):
    random = np.random.default_rng(seed)
    return [
        {
            "id": f"test-{i}", "split": "test", "prompt": "p", "completion": "c", "gold": "1", "prediction": "1",
            "em": bool(random.random() < 0.5), "mean_logprob": math.log(random.uniform(0.05, 1.0)),
        }
        for i in range(n)
    ]  # fmt: skip


def test_seeds_are_pooled_in_the_bins_and_averaged_in_the_error(tmp_path):
    examples = [rows(seed) for seed in (0, 1)]
    for seed in (0, 1):
        write_run(tmp_path, "focal", seed, metrics={"test/em": 0.5}, examples=examples[seed])
    ((curve,),) = assemble([tmp_path], now=NOW).reliability
    assert (curve.label, curve.seeds, sum(b.count for b in curve.bins)) == ("focal", 2, 100)
    mean = sum(b.count * b.accuracy for b in curve.bins) / 100
    assert mean == pytest.approx(np.mean([row["em"] for part in examples for row in part]))
    errors = [
        expected_calibration_error([math.exp(r["mean_logprob"]) for r in part], [r["em"] for r in part])
        for part in examples
    ]
    assert curve.ece == pytest.approx(np.mean(errors))


def test_runs_without_confidence_have_no_curve(report):
    assert report.reliability == ((),)


def test_the_recorded_error_is_shown_where_there_is_one(tmp_path):
    for seed, ece in ((0, 0.125), (1, 0.375)):
        metrics = {"test/em": 0.5, "test/confidence/ece": ece}
        write_run(tmp_path, "focal", seed, metrics=metrics, examples=rows(seed))
    ((curve,),) = assemble([tmp_path], now=NOW).reliability
    assert curve.ece == 0.25
