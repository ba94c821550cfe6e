from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lossbench.report import svg


def test_text_and_attributes_are_escaped():
    drawn = svg.text(1.0, 2.0, "<script>", class_='"x"')
    assert drawn == '<text x="1" y="2" class="&quot;x&quot;">&lt;script&gt;</text>'


@given(st.lists(st.tuples(st.floats(-99, 999), st.floats(-99, 999)), min_size=1, max_size=12))
def test_a_coarse_line_goes_through_the_same_pixels(points):
    from lossbench.report.writers.pdf import _path

    fine, coarse = (_path(svg.path(points, coarse=coarse)).vertices.tolist() for coarse in (False, True))
    assert coarse == [[round(x), round(y)] for x, y in points]
    assert all(a == pytest.approx(b, abs=0.56) for a, b in zip(fine, coarse, strict=True))


@given(st.floats(-1e6, 1e6), st.floats(1e-3, 1e6))
def test_ticks_lie_inside_and_are_evenly_spaced(low, width):
    ticks = svg.linear_ticks(low, low + width)
    assert 1 <= len(ticks) <= 12
    assert all(low - width * 1e-6 <= tick <= low + width * (1 + 1e-6) for tick in ticks)


def test_a_logarithmic_scale_maps_ratios_to_lengths():
    scale = svg.Scale(0.1, 10.0, 0.0, 100.0, is_log=True)
    assert [scale(value) for value in (0.1, 1.0, 10.0)] == pytest.approx([0, 50, 100])
    assert 1.0 in scale.ticks()


def test_a_scale_without_extent_maps_to_its_middle():
    assert svg.Scale(2.0, 2.0, 0.0, 10.0)(2.0) == 5.0


@given(st.lists(st.floats(0, 200), min_size=1, max_size=10))
def test_labels_are_moved_apart_in_order(positions):
    placed = svg.spread(positions, 15.0, 0.0, 200.0)
    ordered = sorted(zip(positions, placed, strict=True))
    gaps = [after[1] - before[1] for before, after in pairwise(ordered)]
    assert all(gap >= 15.0 - 1e-9 for gap in gaps)
    assert max(placed) <= 200.0 + 1e-9
    assert min(placed) >= -1e-9
