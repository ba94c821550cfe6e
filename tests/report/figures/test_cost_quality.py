from lossbench.report import assemble
from lossbench.report.figures import cost_quality
from lossbench.report.figures.cost_quality import Point, front
from tests.report.factory import write_run

NOW = 1_800_000_000.0


def points(*pairs):
    return [Point(str(i), i, cost, quality, 0.0, 0.0) for i, (cost, quality) in enumerate(pairs)]


def test_the_front_joins_what_nothing_beats_in_both():
    given = points((1.0, 5.0), (2.0, 4.0), (3.0, 7.0), (3.0, 6.0), (9.0, 7.0), (10.0, 8.0))
    assert [point.label for point in front(given, True)] == ["0", "2", "5"]
    assert [point.label for point in front(given, False)] == ["0", "1"]


def test_losses_with_cost_and_quality_are_drawn(tmp_path):
    for place, loss in enumerate(("focal", "emo", "mae")):
        costs = {} if loss == "mae" else {"time/train_s": 60.0 + place}
        write_run(tmp_path, loss, 0, metrics={"test/em": 0.4 + place / 10, **costs})
    figure = cost_quality.draw(assemble([tmp_path], now=NOW), 0)
    (drawn,) = figure.drawings
    assert drawn.count('class="dot"') == 2 and 'class="front"' in drawn
    assert "than focal, emo" in figure.caption and "Training time" in drawn


def test_one_loss_with_a_cost_is_no_figure(tmp_path):
    write_run(tmp_path, "focal", 0, metrics={"test/em": 0.4, "time/train_s": 60.0})
    assert cost_quality.draw(assemble([tmp_path], now=NOW), 0) is None


def test_gpu_hours_are_preferred_to_seconds(tmp_path):
    for loss in ("focal", "emo"):
        write_run(tmp_path, loss, 0, metrics={"test/em": 0.4, "time/train_s": 60.0, "perf/gpu_hours": 0.5})
    assert "GPU hours" in cost_quality.draw(assemble([tmp_path], now=NOW), 0).drawings[0]
