import json

import pytest
from typer.testing import CliRunner

from lossbench.cli import app
from lossbench.report.diff import diff
from lossbench.report.errors import NoRunsError
from tests.report.factory import write_run

NOW = 1_800_000_000.0


@pytest.fixture
def pair(tmp_path):
    a = write_run(tmp_path / "x", "focal", 0, metrics={"test/em": 0.5, "test/ppl": 2.0})
    longer = {"trainer": {"max_steps": 300}}
    b = write_run(tmp_path / "y", "focal", 1, metrics={"test/em": 0.6, "test/nll": 1.0}, config=longer)
    return a, b


def test_two_runs_differ_in_settings_and_numbers(pair):
    found = diff(*pair, now=NOW)
    assert ("trainer.max_steps", "150", "300") in found.settings and ("seed", "0", "1") in found.facts
    assert not found.versions
    numbers = {change.name: (change.a, change.b) for change in found.numbers}
    assert numbers == {"test/em": (0.5, 0.6), "test/nll": (None, 1.0), "test/ppl": (2.0, None)}
    assert next(c for c in found.numbers if c.name == "test/em").delta == pytest.approx(0.1)


def test_two_studies_are_compared_by_their_means(tmp_path):
    for study, shift in (("x", 0.0), ("y", 0.1)):
        for seed in (0, 1):
            write_run(tmp_path / study, "focal", seed, metrics={"test/em": 0.5 + 0.1 * seed + shift})
    write_run(tmp_path / "y", "emo", 0, metrics={"test/em": 0.9})
    found = diff(tmp_path / "x", tmp_path / "y", now=NOW)
    numbers = {change.name: (change.a, change.b) for change in found.numbers}
    assert numbers["focal, tiny on arithmetic: test/em"] == pytest.approx((0.55, 0.65))
    assert numbers["emo, tiny on arithmetic: test/em"] == (None, 0.9)
    assert ("loss", "focal", "emo, focal") in found.facts


def test_a_place_without_runs_is_refused(tmp_path, pair):
    with pytest.raises(NoRunsError):
        diff(pair[0], tmp_path / "nothing", now=NOW)


def test_the_command_prints_it_and_gives_json(pair):
    shown = CliRunner().invoke(app, ["diff", *map(str, pair)])
    assert shown.exit_code == 0, shown.output
    assert "trainer.max_steps" in shown.output and "test/em" in shown.output and "are equal" not in shown.output
    tree = json.loads(CliRunner().invoke(app, ["diff", *map(str, pair), "--json"]).output)
    assert ["trainer.max_steps", "150", "300"] in tree["settings"]


def test_a_run_can_be_named_by_the_beginning_of_its_id(pair):
    root = pair[0].parent.parent
    ids = [path.name.rpartition("-")[2] for path in pair]
    shown = CliRunner().invoke(app, ["diff", ids[0][:8], ids[1], "--runs", str(root), "--json"])
    assert shown.exit_code == 0 and json.loads(shown.output)["a"].endswith(ids[0])


def test_what_is_equal_is_counted_and_not_listed(tmp_path):
    runs = [
        write_run(tmp_path / study, "focal", 0, metrics={"test/em": 0.5, "test/ppl": ppl})
        for study, ppl in (("x", 2.0), ("y", 3.0))
    ]
    shown = CliRunner().invoke(app, ["diff", *map(str, runs)])
    assert "test/ppl" in shown.output and "test/em" not in shown.output
    assert "1 of 2 metrics are equal." in shown.output and "Versions: equal." in shown.output
