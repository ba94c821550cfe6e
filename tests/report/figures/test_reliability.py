from dataclasses import replace

from lossbench.report.figures import reliability
from lossbench.report.reliability import ReliabilityBin, ReliabilityCurve


def curves(count):
    bins = (ReliabilityBin(10, 0.2, 0.1), ReliabilityBin(40, 0.8, 0.6))
    return tuple(ReliabilityCurve(f"loss{i}", i, 3, bins, 0.05 * i, "choice") for i in range(count))


def test_a_curve_a_loss_against_the_diagonal(report):
    figure = reliability.draw(replace(report, reliability=(curves(3),)), 0)
    (drawn,) = figure.drawings
    assert [drawn.count(f'class="{name}"') for name in ("line", "dot", "zero")] == [3, 6, 1]
    assert "loss1 0.050" in figure.caption and "confidence in the choice" in drawn


def test_many_curves_have_a_legend_and_no_dots(report):
    figure = reliability.draw(replace(report, reliability=(curves(12),)), 0)
    assert len(figure.legend) == 12 and 'class="dot"' not in figure.drawings[0]


def test_nothing_is_drawn_of_nothing(report):
    assert reliability.draw(report, 0) is None
