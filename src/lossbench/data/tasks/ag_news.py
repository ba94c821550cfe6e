"""AG News (Zhang et al. 2015, https://arxiv.org/abs/1509.01626), as texts without their topics."""

from __future__ import annotations

from typing import ClassVar

from lossbench.data.language_modeling import LanguageModeling
from lossbench.data.sources import HubDataset
from lossbench.data.splits import Holdout
from lossbench.data.task import register


@register("ag_news")
class AGNews(LanguageModeling):
    """News items. There is no validation split: `split_policy: clean` draws 10 % of train, `seed` takes its first 5 %,
    as EMO does."""

    hub = HubDataset("fancyzhx/ag_news")
    published: ClassVar = {"train": 120_000, "test": 7_600}
    prefix_words = 10
    continuation_words = 30

    def holdout(self) -> Holdout:
        return Holdout(5, shuffled=False) if self.split_policy == "seed" else Holdout()
