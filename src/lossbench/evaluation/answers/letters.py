"""The letter of a multiple-choice answer."""

from __future__ import annotations

import re

LETTERS = "ABCDE"

_LEAD_IN = (
    r"(?:(?:so|thus|therefore|hence)\b,?\s*)?(?:the\s+)?(?:(?:final|correct|best|right)\s+)*"
    r"(?:answer|option|choice)(?:\s+is)?\s*:?"
)
_OPENING = r"[\s(\[{\"'\u201c\u2018*]*"
_ENDS_HERE = r"(?=[\s\"'\u201d\u2019*]*(?:$|\n)|[)\]}:\"'\u201d\u2019*]|[.,](?!\w))"


def letter(completion: str, letters: str = LETTERS) -> str | None:
    """The letter, upper-case, with which the completion begins, or None.

    Before it may stand spaces, brackets, quotes, `*` and a lead-in such as `The answer is`; it must end there, so
    `A dog` and `AB` are no letters. `letters` are those of the question's own options.
    """
    pattern = rf"{_OPENING}(?:{_LEAD_IN})?{_OPENING}([{re.escape(letters)}]){_ENDS_HERE}"
    found = re.match(pattern, completion, re.IGNORECASE)
    return found.group(1).upper() if found else None
