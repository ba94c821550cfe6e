from __future__ import annotations

import math
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lossbench.cli import app
from lossbench.errors import DataError
from lossbench.evaluation import reliability_diagram, stored
from tests.evaluation.test_stored import ROWS


def test_choices_or_else_answers_are_what_is_drawn() -> None:
    sure, right = reliability_diagram.confidences(ROWS)
    odds = [math.exp(-1 - (-2 + n)) for n in range(4)]  # of the first choice, the gold one, against the second
    assert sure == pytest.approx([max(x, 1) / (1 + x) for x in odds])
    assert right == [x >= 1 for x in odds]
    answers = [{key: value for key, value in row.items() if key != "choice_logprobs"} for row in ROWS]
    sure, right = reliability_diagram.confidences(answers)
    assert sure == pytest.approx([math.exp(-0.1 * n) for n in range(4)])
    assert right == [False, True, False, False]
    with pytest.raises(DataError, match="neither choices nor the confidence of answers"):
        reliability_diagram.confidences([{"nll_sum": 1.0}])


def test_a_run_s_diagram_is_drawn_from_its_stored_rows(tmp_path: Path) -> None:
    stored.write_rows(tmp_path / "examples.parquet", ROWS)
    output = CliRunner().invoke(app, ["evaluate", str(tmp_path), "--reliability", str(tmp_path / "out.svg")])
    assert output.exit_code == 0, output.output
    assert "<svg" in (tmp_path / "out.svg").read_text()
    with pytest.raises(DataError, match=r"out\.xyz"):
        reliability_diagram.draw(ROWS, tmp_path / "out.xyz")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["examples.parquet", "out.svg"]
