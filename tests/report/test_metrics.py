import math

import pytest

from lossbench.errors import ConfigError
from lossbench.report import metrics


def test_the_registry_describes_a_quantity_for_every_split():
    assert metrics.describe("test/em").label == "Exact match"
    assert metrics.describe("val/em").label == "Validation exact match"
    assert metrics.describe("val/nll").label == "Validation NLL"
    assert metrics.describe("test/em/flexible").label == "Exact match (flexible)"


def test_an_unknown_metric_is_shown_as_logged():
    metric = metrics.describe("test/charm")
    assert (metric.label, metric.direction, metric.digits, metric.is_ranked) == ("test/charm", None, None, False)


@pytest.mark.parametrize(
    "name, value, is_valid",
    [
        ("test/em", 0.0, True), ("test/em", 1.0, True), ("test/em", 1.2, False), ("test/em", -0.1, False),
        ("test/ppl", 1.0, True), ("test/ppl", 0.3, False), ("test/ppl", math.inf, False), ("test/nll", math.nan, False),
        ("test/charm", -5.0, True), ("test/charm", math.nan, False),
    ],
)  # fmt: skip
def test_values_out_of_bounds_are_invalid(name, value, is_valid):
    assert metrics.describe(name).is_valid(value) is is_valid


def test_default_columns_are_those_that_are_present():
    names = [m.name for m in metrics.choose_columns(["val/nll", "test/em", "test/em_strict", "perf/tokens_per_s"])]
    assert names == ["test/em", "val/nll"]


def test_without_a_default_column_all_test_metrics_are_shown():
    assert [m.name for m in metrics.choose_columns(["test/charm", "train/loss"])] == ["test/charm"]


def test_asked_columns_keep_their_order():
    present = ["test/em", "test/charm", "val/nll"]
    assert [m.name for m in metrics.choose_columns(present, ["val/nll", "test/charm"])] == ["val/nll", "test/charm"]


def test_an_unknown_column_names_the_nearest():
    with pytest.raises(ConfigError, match=r"'test/exact'.*Did you mean 'test/em'") as error:
        metrics.choose_columns(["test/em", "val/nll"], ["test/exact"])
    assert error.value.exit_code == 2
