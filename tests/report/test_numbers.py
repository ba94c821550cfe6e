import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lossbench.report import numbers


@pytest.mark.parametrize("text, value", [("Infinity", math.inf), ("-Infinity", -math.inf), ("inf", math.inf)])
def test_words_become_numbers(text, value):
    assert numbers.as_number(text) == value


def test_nan_word_becomes_nan():
    assert math.isnan(numbers.as_number("NaN"))


@pytest.mark.parametrize("value", [True, None, [], {}, "fast", "1.5"])
def test_other_values_are_no_numbers(value):
    assert numbers.as_number(value) is None


def test_an_integer_too_large_for_a_float_is_infinite():
    assert numbers.as_number(-(10**400)) == -math.inf


@given(st.floats())
def test_words_and_numbers_round_trip_through_strict_json(value):
    back = numbers.as_number(json.loads(json.dumps(numbers.as_json(value), allow_nan=False)))
    assert back == value or (math.isnan(back) and math.isnan(value))


@pytest.mark.parametrize("data", [b"", b"{", b"\xff\xfe", b"[" * 100_000, b"[1]", b'"x"', b"null", b"1" * 10_000])
def test_damaged_json_gives_a_sentence(tmp_path, data):
    path = tmp_path / "result.json"
    path.write_bytes(data)
    value, problem = numbers.read_json_object(path)
    assert value is None
    assert problem.startswith("result.json ")


def test_an_absent_file_is_no_problem(tmp_path):
    assert numbers.read_json_object(tmp_path / "result.json") == (None, None)


def test_a_folder_in_place_of_a_file_gives_a_sentence(tmp_path):
    (tmp_path / "run.json").mkdir()
    assert "cannot be read" in numbers.read_json_object(tmp_path / "run.json")[1]


def test_times_without_a_zone_are_utc():
    assert numbers.timestamp("2026-11-30T16:00:00") == numbers.timestamp("2026-11-30T17:00:00+01:00")


@pytest.mark.parametrize("text", ["yesterday", "", None, 7, "2026-13-01T00:00:00"])
def test_what_is_no_time_has_no_timestamp(text):
    assert numbers.timestamp(text) is None


def test_flatten_joins_keys_and_keeps_order_and_lists():
    tree = {"b": {"x": 1, "y": {"z": [1, 2]}}, "a": None, "empty": {}}
    assert list(numbers.flatten(tree).items()) == [("b.x", 1), ("b.y.z", [1, 2]), ("a", None), ("empty", {})]
