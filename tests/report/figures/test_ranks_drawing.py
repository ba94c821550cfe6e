from lossbench.report import assemble
from lossbench.report.figures import drawings, hue, series
from lossbench.report.figures._ranks import draw_ranking
from tests.report.test_ranks import grid

NOW = 1_800_000_000.0


def test_a_row_a_loss_and_a_bar_a_group(tmp_path):
    report = grid(tmp_path, 5)
    drawn = draw_ranking(report.rankings[0], series(report))
    assert [drawn.count(f'class="{name}"') for name in ("series", "clique", "leader")] == [3, 2, 3]
    assert "over 5 settings" in drawn and "emo 1.00" in drawn


def test_a_loss_has_one_colour_in_every_figure(tmp_path):
    report = grid(tmp_path, 5)
    drawn = drawings(report)["ranks-test-em"]
    labels = [row.label for row in report.tables[0].rows]
    assert all(hue(labels.index(label)) in drawn for label in labels)


def test_no_ranking_is_no_drawing(tmp_path):
    assert not any(name.startswith("ranks") for name in drawings(assemble([grid_of_one(tmp_path)], now=NOW)))


def grid_of_one(root):
    grid(root, 1)
    return root
