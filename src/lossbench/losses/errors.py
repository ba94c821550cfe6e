"""Errors of the loss package; each message is one sentence that names the value and the remedy.

The package stands alone (torch and the standard library), so these do not derive from `lossbench.errors`.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class LossError(ValueError):
    """Base class of everything that this package raises on purpose."""


class UnknownLoss(LossError):  # noqa: N818 - reads as the sentence that it prints
    """No loss is registered under this name."""


class BadParameter(LossError):  # noqa: N818
    """A constructor parameter is unknown, of the wrong type or out of range."""


class BadInput(LossError):  # noqa: N818
    """Logits, labels, context, reduction or normalizer cannot be used together."""


class MissingContext(BadInput):
    """The loss needs a tensor that was neither bound nor passed."""


def nearest(name: str, known: Iterable[str]) -> str:
    """Hint for the end of a message about an unknown name, e.g. ` Did you mean 'focal'? Known: ...`."""
    known = sorted(known)
    close = get_close_matches(name, known, n=3, cutoff=0.5)
    hint = f" Did you mean {' or '.join(repr(c) for c in close)}?" if close else ""
    return f"{hint} Known: {', '.join(known) or 'none'}."
