from lossbench.report import assemble
from lossbench.report.findings import findings
from tests.report.factory import write_run

NOW = 1_800_000_000.0


def first(root, values):
    for loss, seeds in values.items():
        for seed, value in enumerate(seeds):
            write_run(root, loss, seed, metrics={"test/em": value})
    return findings(assemble([root], now=NOW).tables[0])[0]


def test_a_lead_within_seed_noise_is_not_called_better(tmp_path):
    found = first(tmp_path, {"cross_entropy": [0.40, 0.44, 0.42], "focal": [0.44, 0.41, 0.45]})
    assert (found.headline, found.value) == ("focal", "43.3 ± 2.1 %")
    assert found.detail.endswith("seed noise is not excluded.")


def test_a_lead_beyond_seed_noise_is_said_so(tmp_path):
    found = first(tmp_path, {"cross_entropy": [0.40, 0.44, 0.42], "focal": [0.60, 0.645, 0.62]})
    assert found.detail.endswith("more than seed noise.")
    assert "+20.2 [" in found.detail


def test_a_leading_baseline_says_how_many_are_worse(tmp_path):
    found = first(tmp_path, {"cross_entropy": [0.60, 0.645, 0.62], "focal": [0.40, 0.44, 0.42]})
    assert found.headline == "cross_entropy"
    assert "1 of 1 other loss is worse" in found.detail


def test_one_seed_ranks_nothing(tmp_path):
    found = first(tmp_path, {"cross_entropy": [0.4], "focal": [0.9]})
    assert (found.headline, found.row) == ("no ranking", None)


def test_equal_means_share_the_headline(tmp_path):
    found = first(tmp_path, {"a": [0.4, 0.5], "b": [0.5, 0.4], "c": [0.1, 0.2]})
    assert found.headline == "a and b"
