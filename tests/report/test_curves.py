import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lossbench.report import assemble
from lossbench.report.curves import make_curve, read_panels
from tests.report.conftest import HOSTILE
from tests.report.factory import write_run


@given(st.lists(st.lists(st.floats(0, 10), min_size=5, max_size=5), min_size=1, max_size=4))
def test_line_and_band_are_mean_and_range_over_seeds(values):
    curve = make_curve("a", 0, [dict(enumerate(seed)) for seed in values])
    assert np.allclose(curve.mean, np.mean(values, axis=0))
    assert np.allclose(curve.low, np.min(values, axis=0))
    assert np.allclose(curve.high, np.max(values, axis=0))
    assert (curve.steps, curve.seeds) == ((0, 1, 2, 3, 4), len(values))


def test_only_steps_that_all_seeds_logged_are_drawn():
    curve = make_curve("a", 0, [{1: 1.0, 2: 2.0, 3: 3.0}, {2: 4.0, 3: 5.0, 4: 6.0}])
    assert (curve.steps, curve.mean) == ((2, 3), (3.0, 4.0))


def test_seeds_without_common_steps_keep_all_of_theirs():
    assert make_curve("a", 0, [{1: 1.0, 3: 3.0}, {2: 4.0, 4: 6.0}]).steps == (1, 2, 3, 4)


def test_long_logs_are_averaged_in_blocks():
    curve = make_curve("a", 0, [{step: float(step) for step in range(1000)}], max_points=80)
    assert len(curve.steps) <= 80
    assert curve.block == 13
    assert curve.mean[0] == np.mean(range(13))


def test_rows_that_a_later_attempt_logged_again_are_counted(tmp_path):
    run = write_run(
        tmp_path, "focal", 0, metrics={"test/em": 0.5}, history=[{"step": s, "val/nll": 1.0} for s in (3, 4)]
    )
    (run / "metrics.attempt1.jsonl").write_text("".join(f'{{"step": {s}, "val/nll": 2.0}}\n' for s in (1, 2, 3, 4, 5)))
    report = assemble([tmp_path], now=1_800_000_000.0)
    assert report.panels[0][0].curves[0].mean == (2.0, 2.0, 1.0, 1.0)
    assert "Of 3 rows of its curves a later attempt logged the steps again" in " ".join(report.records[0].problems)


def test_runs_that_did_not_end_are_not_drawn_but_their_damage_is_named(report):
    panels, problems = read_panels(report.tables[0])
    seeds = {curve.label: curve.seeds for curve in panels[0].curves}
    assert seeds == {"cross_entropy": 3, "focal": 3, "lovasz": 1, HOSTILE: 2}
    assert any("cut off" in sentence for sentences in problems.values() for sentence in sentences)
