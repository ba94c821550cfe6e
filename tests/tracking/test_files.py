import json
from pathlib import Path

import pytest

from lossbench.tracking.files import strict, write_atomically, write_json


def test_words_stand_for_what_json_has_no_number_for():
    inf = float("inf")
    assert strict({"a": [float("nan"), inf, -inf, 1.5], 2: (True, None)}) == {
        "a": ["NaN", "Infinity", "-Infinity", 1.5],
        "2": [True, None],
    }


def test_a_failed_write_leaves_the_old_file(tmp_path: Path):
    file = tmp_path / "result.json"
    write_json(file, {"a": 1})
    with pytest.raises(TypeError):
        write_json(file, {"a": object()})
    with pytest.raises(UnicodeEncodeError):
        write_atomically(file, "\ud800")
    assert json.loads(file.read_text()) == {"a": 1}
