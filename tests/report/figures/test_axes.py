import re

from lossbench.report.figures._axes import LEFT, names_beside


def boxes(parts):
    for part in parts:
        x, y, anchor, name = re.search(r'x="([\d.]+)" y="([\d.]+)".*text-anchor="(\w+)">(.*)</text>', part).groups()
        width = 6.8 * len(name)
        start = float(x) - (width if anchor == "end" else 0)
        yield start, float(y) - 11, start + width, float(y) + 3


def test_names_do_not_cover_each_other():
    points = [(f"loss{i}", i, 100.0 + 6 * (i % 3), 100.0 + 5 * i) for i in range(6)]
    found = list(boxes(names_beside(points, 544.0)))
    for i, a in enumerate(found):
        for b in found[:i]:
            assert not (a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3])


def test_names_stay_inside_the_drawing():
    (box,) = boxes(names_beside([("a_long_name", 0, 540.0, 100.0)], 544.0))
    assert box[0] >= LEFT and box[2] <= 544.0
