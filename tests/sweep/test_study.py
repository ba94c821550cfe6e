"""From a study's file to overrides."""

import itertools

import pytest

from lossbench.errors import ConfigError
from lossbench.sweep.study import as_text, expand, parse_sweep


def test_a_grid_is_every_combination_with_every_seed_in_order():
    sweep = parse_sweep({"grid": {"loss": ["emo", "focal"], "optimizer.lr": [1e-4, 0.1]}, "seeds": [0, 1]})
    assert expand(sweep, {}) == [
        [f"loss={loss}", f"optimizer.lr={lr}", f"seed={seed}"]
        for loss, lr, seed in itertools.product(("emo", "focal"), ("0.0001", "0.1"), (0, 1))
    ]


def test_the_command_line_replaces_an_axis_and_adds_constants():
    sweep = parse_sweep({"grid": {"loss": ["emo", "focal"]}, "seeds": [0, 1]})
    assert expand(sweep, {"loss": ["mae"], "trainer.max_steps": ["3"]}) == [
        ["loss=mae", "seed=0", "trainer.max_steps=3"],
        ["loss=mae", "seed=1", "trainer.max_steps=3"],
    ]


def test_excluded_combinations_are_left_out():
    sweep = parse_sweep(
        {"grid": {"loss": ["a", "b", "c"], "model": ["x", "y"]}, "exclude": [{"loss": ["a", "b"], "model": "y"}]}
    )
    assert expand(sweep, {}) == [
        ["loss=a", "model=x"], ["loss=b", "model=x"], ["loss=c", "model=x"], ["loss=c", "model=y"],
    ]  # fmt: skip


def test_a_later_cell_wins_and_the_command_line_over_all():
    cells = [
        {"when": {"loss": "a"}, "set": {"optimizer.lr": 1.0, "trainer.accumulate": 2}},
        {"when": {"loss": "a", "model": "x"}, "set": {"optimizer.lr": 2.0}},
    ]
    sweep = parse_sweep({"grid": {"loss": ["a", "b"], "model": ["x", "y"]}, "cells": cells})
    assert expand(sweep, {"trainer.accumulate": ["8"]}) == [
        ["loss=a", "model=x", "trainer.accumulate=8", "optimizer.lr=2.0"],
        ["loss=a", "model=y", "trainer.accumulate=8", "optimizer.lr=1.0"],
        ["loss=b", "model=x", "trainer.accumulate=8"],
        ["loss=b", "model=y", "trainer.accumulate=8"],
    ]


def test_without_a_file_the_command_line_alone_is_the_grid():
    assert expand(parse_sweep({}), {"seed": ["0", "1"]}) == [["seed=0"], ["seed=1"]]


@pytest.mark.parametrize(
    ("block", "sentence"),
    [
        ({"gird": {}}, "Unknown key sweep.gird. Did you mean 'grid'"),
        ({"grid": {"loss": []}}, "sweep.grid.loss has no values"),
        ({"grid": {"loss": "emo"}}, "sweep.grid.loss='emo' cannot be used"),
        ({"seeds": ["x"]}, "sweep.seeds.0='x' cannot be used"),
        ({"grid": {"loss": ["a"]}, "exclude": [{"los": "a"}]}, r"sweep.exclude\[0\] names los, which is no axis"),
        ({"grid": {"loss": ["a"]}, "exclude": [{"loss": "b"}]}, r"sweep.exclude\[0\]: loss is never b"),
        ({"grid": {"loss": ["a"]}, "exclude": [{"loss": "a"}]}, "leaves no combination"),
        ({"grid": {"loss": ["a"]}, "exclude": [{}]}, "is empty"),
        ({"grid": {"loss": ["a"]}, "cells": [{"when": {"loss": "a"}}]}, "cells.0.set is missing"),
    ],
)
def test_a_mistake_in_a_study_is_a_sentence(block: dict, sentence: str):
    with pytest.raises(ConfigError, match=sentence):
        expand(parse_sweep(block), {})


@pytest.mark.parametrize("value", [None, True, 3, 1e-5, "plain", "a b", "a,b", "it's", "", [1, "x y"], {"a": 1}])
def test_values_survive_the_override_grammar(value):
    from hydra.core.override_parser.overrides_parser import OverridesParser

    assert OverridesParser.create().parse_override(f"key={as_text(value)}").value() == value
