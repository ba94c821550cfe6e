"""LM head and loss in one step, for every loss, without the logits of all tokens.

`head` holds the matrix products, `rows` a block of logits in the cache, `terms` what each family of losses makes of it,
`columns`, `lovasz` and `transport` the losses that need more, `paths` which loss goes which way, `engine` the passes
and the autograd function, `linear` the public functions.
"""

from .head import LowRank
from .linear import Terms, linear, linear_terms
from .paths import path

__all__ = ["LowRank", "Terms", "linear", "linear_terms", "path"]
