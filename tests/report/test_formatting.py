import pytest

from lossbench.report import formatting
from lossbench.report.metrics import describe


@pytest.mark.parametrize(
    "name, value, text",
    [
        ("test/em", 0.4731, "47.3"), ("test/ppl", 1.2345, "1.234"), ("test/ppl", 43210.987, "43211.0"),
        ("val/nll", 0.00001, "1.00e-05"), ("val/nll", 0.0, "0.0000"), ("test/charm", 12.34567, "12.35"),
        ("test/ppl", 1e9, "1.00e+09"),
    ],
)  # fmt: skip
def test_numbers_have_the_digits_of_their_metric(name, value, text):
    assert formatting.number(value, describe(name)) == text


def test_small_p_values_are_bounded():
    assert [formatting.p_value(p) for p in (None, 0.0004, 0.0321, 1.0)] == ["", "<0.001", "0.032", "1.000"]


def test_times_are_shown_in_utc():
    assert formatting.moment("2026-11-30T17:00:00+01:00") == "2026-11-30 16:00 UTC"
    assert formatting.moment("soon") == ""


def test_counted_words():
    assert [formatting.counted(n, "loss") for n in (1, 2)] == ["1 loss", "2 losses"]


def test_a_cut_is_shown():
    assert formatting.clipped("abcdef", 4) == "abc…"
