import re

from lossbench.report.curves import Panel, make_curve
from lossbench.report.figures import _axes, dash, hue, learning_curves


def panel(values, labels="ab"):
    pairs = enumerate(zip(labels, values, strict=True))
    curves = tuple(make_curve(label, i, [{1: v, 2: v / 2}, {1: v, 2: v / 3}]) for i, (label, v) in pairs)
    return Panel("val/nll", "Validation NLL", curves)


def test_every_loss_has_a_line_a_band_and_a_label():
    drawn = learning_curves.draw_panel(panel([1.0, 2.0]))
    assert [drawn.count(f'class="{name}"') for name in ("line", "band", "series")] == [2, 2, 2]
    assert "a ends at 0.417" in drawn


def test_a_wide_range_gets_a_logarithmic_axis():
    assert "log scale" in learning_curves.draw_panel(panel([1.0, 20.0]))
    assert "log scale" not in learning_curves.draw_panel(panel([1.0, 1.1]))
    assert "log scale" not in learning_curves.draw_panel(panel([0.0, 1.0]))


def test_everything_lies_inside_the_drawing():
    drawn = learning_curves.draw_panel(panel([1.0, 20.0]))
    numbers = [float(n) for d in re.findall(r' d="M([^"]*)"', drawn) for n in re.findall(r"[\d.]+", d)]
    assert all(0 <= x <= _axes.WIDTH for x in numbers[::2])
    assert all(0 <= y <= _axes.HEIGHT for y in numbers[1::2])


def test_series_of_one_colour_differ_in_their_dashes():
    looks = {(hue(index), dash(index)) for index in range(19)}
    assert len(looks) == 19
