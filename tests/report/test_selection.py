import pytest

from lossbench.errors import ConfigError
from lossbench.report import Choices, assemble
from lossbench.report.collect import collect
from lossbench.report.selection import parse_where, select, since
from tests.report.factory import write_plan, write_run

NOW = 1_800_000_000.0


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs") / "s"
    write_plan(root, ["lovasz"], [0, 1])
    for loss in ("focal", "emo"):
        for seed in (0, 1):
            when = f"2026-11-{10 + seed}T12:00:00+00:00"
            write_run(
                root, loss, seed, metrics={"test/em": 0.3 + 0.1 * seed}, created=when, config={"b": True, "lr": 1e-4}
            )
    return root


@pytest.mark.parametrize(
    "where, names",
    [
        ("", ["emo0", "emo1", "focal0", "focal1", "lovasz0", "lovasz1"]),
        ("loss=focal", ["focal0", "focal1"]),
        ("loss=focal,emo seed=0", ["emo0", "focal0"]),
        ("loss!=focal", ["emo0", "emo1", "lovasz0", "lovasz1"]),
        ("seed<1", ["emo0", "focal0", "lovasz0"]),
        ("seed>=1 loss~OCA", ["focal1"]),
        ("test/em>0.35", ["emo1", "focal1"]),
        ("lr=0.0001", ["emo0", "emo1", "focal0", "focal1"]),
        ("trainer.max_steps<=150 state=finished", ["emo0", "emo1", "focal0", "focal1"]),
        ("b=true", ["emo0", "emo1", "focal0", "focal1"]),
        ("created>=2026-11-11", ["emo1", "focal1"]),
        ("'loss=focal'", ["focal0", "focal1"]),
    ],
)
def test_conditions_choose_runs(runs, where, names):
    found = select(collect([runs], NOW), parse_where(where))
    assert [f"{r.loss}{r.seed}" for r in found.records] == names


def test_runs_that_lack_a_key_can_be_asked_for(tmp_path):
    write_run(tmp_path, "focal", 0, metrics={"test/em": 0.5}, config={"scale": None, "lr": 1e-4})
    write_run(tmp_path, "focal", 1, metrics={"test/em": 0.5, "test/ppl": 2.0}, config={"lr": 1e-4, "warmup": 3})
    for where, seeds in (
        ("warmup=missing", [0]), ("warmup!=missing", [1]), ("test/ppl=missing", [0]), ("warmup!=3", [0]),
        ("lr!=missing", [0, 1]), ("scale=missing", [0, 1]), ("warmup<5", [1]),
    ):  # fmt: skip
        assert [r.seed for r in select(collect([tmp_path], NOW), parse_where(where)).records] == seeds, where


def test_since_is_a_condition_on_the_time_of_creation(runs):
    found = select(collect([runs], NOW), [since("2026-11-11")])
    assert {(r.loss, r.seed) for r in found.records} == {("emo", 1), ("focal", 1)}


def test_what_was_left_out_is_said(runs):
    found = select(collect([runs], NOW), parse_where("loss=focal lr=1e-4"))
    assert any("4 other runs are left out" in problem for problem in found.problems)
    found = select(collect([runs], NOW), parse_where("lr=1e-4"))
    assert any("2 missing runs left out as well" in problem for problem in found.problems)


@pytest.mark.parametrize(
    "where, said",
    [
        ("optimiser.lr=1", "no run has the key 'optimiser.lr'"),
        ("loos=focal", "Did you mean 'loss'"),
        ("focal", "'focal' is no condition"),
        ("loss=", "is no condition"),
        ("loss='focal", "cannot be read"),
        ("loss=nothing", "None of the 6 runs fulfils loss=nothing"),
    ],
)
def test_a_condition_that_cannot_be_meant_is_refused(runs, where, said):
    with pytest.raises(ConfigError, match=said) as error:
        assemble([runs], Choices(where=where), now=NOW)
    assert error.value.exit_code == 2


def test_a_since_that_is_no_date_is_refused():
    with pytest.raises(ConfigError, match="no date"):
        since("yesterday")
