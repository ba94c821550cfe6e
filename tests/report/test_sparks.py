import re

from lossbench.report import sparks
from lossbench.report.metrics import describe
from lossbench.report.statistics import Difference
from lossbench.report.table import Cell, Comparison


def cell(values, comparison=None, metric="test/em"):
    return Cell(describe(metric), tuple(enumerate(values)), {}, mean=sum(values) / len(values), comparison=comparison)


def test_every_seed_is_a_dot_on_the_columns_scale():
    cells = [cell([0.0, 1.0]), cell([0.5])]
    extent = sparks.seed_range(cells)
    assert extent == (0.0, 1.0)
    assert sparks.seed_dots(cells[0], extent).count("h0") == 2
    assert f"M{sparks.WIDTH / 2:.0f} 6h0" in sparks.seed_dots(cells[1], extent)


def test_a_column_of_equal_values_has_no_dots():
    cells = [cell([0.5, 0.5])]
    assert sparks.seed_dots(cells[0], sparks.seed_range(cells)) == ""


def test_no_difference_lies_between_a_loss_and_a_win():
    found = [Difference(estimate, estimate - 0.1, estimate + 0.1, 0.5, "paired t", 3) for estimate in (-0.2, 0.2)]
    cells = [cell([0.5, 0.6], Comparison("cross_entropy", difference)) for difference in found]
    scale = sparks.forest_scale(cells)
    left, right = (float(re.search(r'cx="([\d.]+)"', sparks.forest(c, scale)).group(1)) for c in cells)
    assert left < scale(0.0) < right


def test_ratios_are_drawn_around_one():
    comparison = Comparison("cross_entropy", Difference(0.5, 0.4, 0.6, 0.01, "paired t", 3))
    scale = sparks.forest_scale([cell([2.0, 3.0], comparison, "test/ppl")])
    assert scale.is_log
    assert (scale.low, scale.high) == (0.4, 1.0)
