"""WikiText-2 (Merity et al. 2016, https://arxiv.org/abs/1609.07843)."""

from __future__ import annotations

from typing import ClassVar

from lossbench.data.language_modeling import LanguageModeling
from lossbench.data.sources import HubDataset
from lossbench.data.task import register


@register("wikitext2")
class WikiText2(LanguageModeling):
    """Lines of Wikipedia articles, blank ones and headings included. A folder may hold the raw or the tokenised form
    (with `<unk>`); their perplexities are not comparable."""

    hub = HubDataset("Salesforce/wikitext", "wikitext-2-raw-v1")
    published: ClassVar = {"train": 36_718, "validation": 3_760, "test": 4_358}
    prefix_words = 20
    continuation_words = 80
    running_text = True
