import re
from itertools import islice

import pytest

from lossbench.data.word_problems import DIFFICULTIES, SPLITS, problems


@pytest.mark.parametrize("difficulty", DIFFICULTIES)
def test_every_step_is_right_and_the_marked_number_is_the_last_result(difficulty: str):
    for problem in islice(problems("train", difficulty, 0), 2000):
        steps = re.findall(r"<<(\d+)([-+*/])(\d+)=(\d+)>>", problem.answer)
        for left, sign, right, value in steps:
            a, b, result = int(left), int(right), int(value)
            assert {"+": a + b == result, "-": a - b == result, "*": a * b == result, "/": a == b * result}[sign]
        assert steps[-1][-1] == problem.answer.rpartition("#### ")[2]
        assert len(steps) in ((1, 2) if difficulty == "easy" else (2, 3, 4))


@pytest.mark.parametrize("difficulty", DIFFICULTIES)
def test_no_template_meets_the_same_numbers_in_two_splits(difficulty: str):
    keys = {
        split: {(p.template, p.numbers) for seed in (0, 1) for p in islice(problems(split, difficulty, seed), 1500)}
        for split in SPLITS
    }
    assert not keys["train"] & keys["validation"]
    assert not keys["train"] & keys["test"]
    assert not keys["validation"] & keys["test"]


def test_the_seed_decides_the_problems_and_none_comes_twice():
    first, again, other = (list(islice(problems("test", "hard", seed), 300)) for seed in (0, 0, 1))
    assert first == again != other
    assert len({problem.question for problem in first}) == 300


def test_every_hard_template_is_in_every_split():
    for split in SPLITS:
        assert len({problem.template for problem in islice(problems(split, "hard", 0), 500)}) == len(
            DIFFICULTIES["hard"]
        )
