"""Corrupted training targets, to study how a loss bears wrong labels: `dataset.corrupt_targets=0.2`.

Symmetric label noise for texts: a share of the training examples keeps its prompt and gets the target of another
example of the same dataset. Such a target is a fluent answer to another question. Validation and test stay as they are.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from lossbench.config import RunConfig
from lossbench.data import task as tasks
from lossbench.data.example import Example
from lossbench.data.task import Task
from lossbench.errors import ConfigError


def training_examples(task: Task, config: RunConfig) -> list[Example]:
    """What a run trains on: the first `dataset.limit` training examples, with `dataset.corrupt_targets` of their
    targets exchanged; how many is noted in the task's notes and counted as `train_corrupted`."""
    found = tasks.load(task, "train", config.dataset.limit)
    share = config.dataset.corrupt_targets
    if share == 0:
        return found
    after = corrupted(found, share, config.seed)
    count = sum(one.target != other.target for one, other in zip(found, after, strict=True))
    task.notes.counts["train_corrupted"] = count
    task.notes.say(f"{count:,} of {len(found):,} training examples have the target of another one.")
    return after


def corrupted(examples: Sequence[Example], share: float, seed: int) -> list[Example]:
    """The examples in their order, round(share * n) of them with the target of another one.

    Which ones, and whose targets, follows from `seed` alone; a larger share under the same seed corrupts the same ones
    and more. A given target is never the text that the example had; each is drawn from all other examples, so that
    frequent targets (letters, classes) stay frequent. A share of 0 changes nothing.

    Raises:
        ConfigError: a share outside of [0, 1); examples without a prompt, whose targets nothing could contradict;
            examples that were prepared as tokens; or targets that are all one text.
    """
    if not 0 <= share < 1:
        raise ConfigError(
            f"dataset.corrupt_targets={share} cannot be used: it is a share of the training examples, 0 <= share < 1."
        )
    if share == 0:
        return list(examples)
    for example in examples:
        if "input_ids" in example.meta or not example.prompt:
            what = "comes as prepared tokens" if "input_ids" in example.meta else "has no prompt"
            raise ConfigError(
                f"dataset.corrupt_targets={share} exchanges the targets of prompts, but {example.id} {what}: leave it "
                "at 0, or choose a dataset with prompts and targets as text."
            )
    if len({example.target for example in examples}) < 2:
        raise ConfigError(
            f"dataset.corrupt_targets={share} needs two different targets, and all {len(examples):,} training examples "
            "have the same one."
        )
    rng = random.Random(f"corrupt_targets:{seed}")
    order = rng.sample(range(len(examples)), len(examples))
    donors = [examples[number].target for number in rng.sample(range(len(examples)), len(examples))]
    found = list(examples)
    for number in order[: round(share * len(examples))]:
        start = rng.randrange(len(donors))
        turned = (donors[(start + step) % len(donors)] for step in range(len(donors)))
        other = next(target for target in turned if target != examples[number].target)
        found[number] = replace(examples[number], target=other)
    return found
