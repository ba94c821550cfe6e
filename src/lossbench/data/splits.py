"""Which rows of a source are train, validation and test: a pure function of the splits that it has."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

Split = Literal["train", "validation", "test"]
SplitPolicy = Literal["seed", "clean"]


@dataclass(frozen=True)
class Part:
    """The rows from `start` to `stop` per cent of the source's split `source`, in its own order or in a shuffled one.

    Shuffled with seed 42 and cut at 10 per cent, a part and its rest equal the two sides of
    `datasets.Dataset.train_test_split(test_size=0.1, seed=42)`.
    """

    source: str
    start: int = 0
    stop: int = 100
    shuffled: bool = False

    def indices(self, count: int) -> Sequence[int]:
        """Which of `count` rows belong to the part; cuts are rounded up."""
        first, last = (-(-count * per_cent // 100) for per_cent in (self.start, self.stop))
        if not self.shuffled:
            return range(first, last)
        import numpy as np

        return np.random.default_rng(42).permutation(count)[first:last].tolist()


@dataclass(frozen=True)
class Holdout:
    """How a validation split is cut out of another one: so many per cent, at random (seed 42) or from the beginning."""

    per_cent: int = 10
    shuffled: bool = True

    def parts(self, source: str) -> dict[Split, Part]:
        return {
            "train": Part(source, self.per_cent, 100, self.shuffled),
            "validation": Part(source, 0, self.per_cent, self.shuffled),
        }

    def __str__(self) -> str:
        return f"{self.per_cent} % of its rows, {'drawn with seed 42' if self.shuffled else 'the first ones'}"


def assign(
    found: Collection[str], policy: SplitPolicy, holdout: Holdout | None = None
) -> tuple[dict[Split, Part], str | None]:
    """The part of the source behind each split, and a sentence where it is not simply the split of that name.

    A missing validation split is cut out of train. Where there are no test labels (HellaSwag) test is the validation
    split; then the policy `clean` validates on rows of train, and `seed`, as the vision-loss paper does, on the test
    rows themselves. A missing train split is the validation split without its held-out rows. A lone split is cut
    80/10/10. Of a lone test split nothing is trained on: then the result has no other key.
    """
    holdout = holdout or Holdout()
    own: dict[Split, Part] = {name: Part(name) for name in ("train", "validation", "test") if name in found}
    match "train" in found, "validation" in found, "test" in found:
        case True, True, False if policy == "seed":
            return {**own, "test": Part("validation")}, "Test and validation are the same rows (split_policy=seed)."
        case True, True, False:
            parts = {**holdout.parts("train"), "test": Part("validation")}
            return parts, f"Test is the validation split of the source; validation is cut out of train: {holdout}."
        case True, False, True:
            return {**own, **holdout.parts("train")}, f"Validation is cut out of train: {holdout}."
        case False, True, True:
            parts = {**own, **holdout.parts("validation")}
            return parts, f"There is no train split: train is the validation split without the held-out {holdout}."
        case (True, False, False) | (False, True, False):
            (lone,) = own
            thirds: dict[Split, Part] = {
                "train": Part(lone, 20, 100, holdout.shuffled),
                "validation": Part(lone, 0, 10, holdout.shuffled),
                "test": Part(lone, 10, 20, holdout.shuffled),
            }
            how = "at random (seed 42)" if holdout.shuffled else "in its own order"
            return thirds, f"There is only a {lone} split: it is cut {how} into validation, test and train, 10/10/80."
    return own, None
