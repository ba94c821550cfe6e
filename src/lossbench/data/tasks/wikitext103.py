"""WikiText-103 (Merity et al. 2016, https://arxiv.org/abs/1609.07843)."""

from __future__ import annotations

from typing import ClassVar

from lossbench.data.language_modeling import LanguageModeling
from lossbench.data.sources import HubDataset
from lossbench.data.task import register


@register("wikitext103")
class WikiText103(LanguageModeling):
    """Lines of Wikipedia articles; validation and test are those of WikiText-2, train is fifty times as long."""

    hub = HubDataset("Salesforce/wikitext", "wikitext-103-raw-v1")
    published: ClassVar = {"train": 1_801_350, "validation": 3_760, "test": 4_358}
    prefix_words = 20
    continuation_words = 80
    running_text = True
