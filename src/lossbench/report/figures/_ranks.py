"""Mean ranks of losses over settings; losses that the critical difference does not tell apart are joined by a bar."""

from __future__ import annotations

from collections.abc import Mapping

from lossbench.report.figures import hue
from lossbench.report.figures._axes import LABEL_CHARACTERS, WIDTH, chart, dot
from lossbench.report.formatting import clipped
from lossbench.report.ranks import Ranking
from lossbench.report.svg import Scale, element, path, text

LEFT, RIGHT, TOP, ROW = 140.0, 60.0, 52.0, 20.0


def draw_ranking(ranking: Ranking, series: Mapping[str, int]) -> str:
    """A row a loss, sorted by mean rank; small dots are its ranks in the single columns.

    Args:
        ranking: of one metric.
        series: the series number of each loss, for its colour.
    """
    count = len(ranking.losses)
    bottom = TOP + ROW * count
    x = Scale(1.0, float(max(2, count)), LEFT, WIDTH - RIGHT - 10.0 * len(ranking.groups))
    parts = [
        text(
            0.0, 14.0, f"Mean rank by {ranking.metric.label} over {len(ranking.columns)} settings", class_="panel-title"
        )
    ]
    for tick in range(1, count + 1):
        parts.append(element("path", d=path([(x(tick), TOP - 6), (x(tick), bottom)]), class_="grid"))
        parts.append(text(x(tick), TOP - 12, str(tick), class_="tick", text_anchor="middle"))
    for place, loss in enumerate(ranking.losses):
        y = TOP + ROW * (place + 0.5)
        index = series[loss.label]
        parts.append(text(LEFT - 14, y + 4, clipped(loss.label, LABEL_CHARACTERS), class_="series", text_anchor="end"))
        parts.append(element("path", d=path([(x(1), y), (x(loss.mean_rank), y)]), class_="leader", style=hue(index)))
        parts += [dot(x(rank), y, index, 1.8) for rank in sorted(set(loss.ranks))]
        parts.append(dot(x(loss.mean_rank), y, index, 5.0))
    for number, (first, last) in enumerate(ranking.groups):
        at = WIDTH - RIGHT + 18 - 10.0 * (len(ranking.groups) - number)
        ends = [(at, TOP + ROW * first + 3), (at, TOP + ROW * (last + 1) - 3)]
        parts.append(element("path", d=path(ends), class_="clique"))
    names = ", ".join(f"{loss.label} {loss.mean_rank:.2f}" for loss in ranking.losses[:10])
    return chart(parts, f"Mean ranks: {names}.", bottom + 8)
