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


def test_mauve_is_named_after_its_featurizer_and_has_a_column_for_each():
    found = metrics.describe("test/mauve[gpt2-large,emo]")
    assert (found.label, found.direction, found.is_ranked) == ("MAUVE [gpt2-large,emo]", "higher", True)
    assert metrics.describe("val/mauve[tiny]").label == "Validation MAUVE [tiny]"
    few = metrics.describe("test/mauve_indicative[tiny]")
    assert (few.label, few.direction, few.is_ranked) == ("MAUVE (indicative) [tiny]", "higher", False)
    assert metrics.describe("test/mauve[tiny]/frontier_integral").direction == "lower"
    assert metrics.describe("test/mauve[tiny]/tuning_at_0.7").label == "MAUVE at 0.7 [tiny]"
    assert metrics.describe("test/mauve[tiny]/charm").label == "test/mauve[tiny]/charm"
    present = ["test/mauve[tiny]", "test/mauve[gpt2-large]", "test/mauve[tiny]/n", "test/ppl", "test/acc_norm"]
    names = [metric.name for metric in metrics.choose_columns(present)]
    assert names == ["test/acc_norm", "test/mauve[gpt2-large]", "test/mauve[tiny]", "test/ppl"]


@pytest.mark.parametrize(
    ("name", "direction", "high"),
    [
        ("test/acc_bytes", "higher", 1.0), ("test/letter_logprob", "higher", 1.0), ("test/pass@8", "higher", 1.0),
        ("test/maj@8", "higher", 1.0), ("test/confidence/ece", "lower", 1.0), ("test/choices/brier", "lower", 2.0),
        ("test/error/runaway", "lower", 1.0), ("test/stops/eos", None, 1.0), ("test/bits_per_byte", "lower", math.inf),
        ("test/steps/missing", "lower", 1.0), ("test/seed/iou", "higher", 1.0), ("test/text/zipf", None, math.inf),
        ("harness/gsm8k/exact_match,strict-match", "higher", 1.0), ("harness/gsm8k/acc_stderr,none", None, math.inf),
    ],
)  # fmt: skip
def test_metrics_of_an_evaluation_have_a_direction_and_bounds(name: str, direction: str | None, high: float):
    found = metrics.describe(name)
    assert (found.name, found.direction, found.high) == (name, direction, high)
    assert found.label != name


def test_every_metric_that_an_evaluation_writes_is_named():
    from lossbench.evaluation.metrics import aggregate
    from tests.evaluation.test_stored import ROWS

    sampled = {"sampled_n": 4, "sampled_right": 1, "sampled_majority_em": True}
    names = {"em_strict": True, "em_flexible": True, "em_seed": False, "seed_crash": False}
    sums = {"max_prob_sum": 1.0, "n_sure_tokens": 0, "rank_sum": 9, "letter_logprob": True}
    scored = {"acc_norm": True, "acc_bytes": False}
    bucket = {
        "mauve_name": "tiny", "mauve_buckets": 2, "mauve_clusterings": 2, "mauve_temperatures": [1.0, 1.0],
        "mauve_human": [[0], [1], [0], [1]], "mauve_model": [[0], [1], [1], [1]], "samples": ["a b", "c"],
        "mauve_half_buckets": 2, "mauve_ceiling": [[0], [1]], "mauve_half": [[1], [0]],
    }  # fmt: skip
    rows = [{**row, **sampled, **names, **sums, **scored, **bucket} for row in ROWS for _ in range(60)]
    tuning = [{**bucket, "view": "tuning"} for _ in range(200)]
    found = aggregate([*rows, *tuning, *({**bucket, "view": "tuned"} for _ in range(200))], "test")
    assert {"test/pass@2", "test/mauve_indicative[tiny]/tuned", "test/mauve_indicative[tiny]/ceiling"} <= set(found)
    assert [name for name in found if not name.startswith("data/") and metrics.describe(name).label == name] == []
    assert all(metrics.describe(name).is_valid(value) for name, value in found.items())
