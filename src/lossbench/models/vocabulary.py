"""What the tokens of a vocabulary stand for."""

from __future__ import annotations

import math
import re
from typing import Any

import torch
from torch import Tensor

NUMBER = re.compile(r"[0-9]+(\.[0-9]+)?")


def number_values(tokenizer: Any, vocabulary: int) -> Tensor:
    """(vocabulary,) float64: the number that a token's text is, NaN where it is none.

    Spaces around it do not count, so `7` and ` 7` are both 7, and a token of several digits is its whole number.
    Special tokens and rows of the head beyond the tokenizer are no numbers.
    """
    texts = tokenizer.batch_decode([[token] for token in range(len(tokenizer))], clean_up_tokenization_spaces=False)
    special = set(tokenizer.all_special_ids)
    values = [
        float(text) if token not in special and NUMBER.fullmatch(text := raw.strip()) else math.nan
        for token, raw in enumerate(texts)
    ]
    return torch.tensor([*values, *[math.nan] * (vocabulary - len(values))], dtype=torch.float64)[:vocabulary]
