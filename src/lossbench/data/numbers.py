"""Numbers in text as exact rationals: `#### $1,250.50`, `1 1/2`, `1e-05`, `The answer is 7.`

Values are compared, never spellings: `29.00`, `29` and `$29` are one answer, and `1e-05` is not 1.
"""

from __future__ import annotations

import re
import unicodedata
from fractions import Fraction

MAX_DIGITS = 1000
"""Longer digit strings and larger exponents are the babble of a looping model, not answers."""

TOLERANCE = Fraction(1, 10**6)

_DASHES = dict.fromkeys(map(ord, "\u2010\u2011\u2012\u2013\u2014\u2015\u2212\ufe58\ufe63\uff0d"), "-")
_SUPERSCRIPTS = dict.fromkeys(map(ord, "\u00b2\u00b3\u00b9\u2070\u2074\u2075\u2076\u2077\u2078\u2079"), "")
_VULGAR_FRACTION_AFTER_DIGIT = re.compile(r"(?<=[0-9])(?=[\u00bc-\u00be\u2150-\u215e])")

_INTEGER = r"[0-9]+(?:,[0-9]+)*"
_DECIMAL = rf"(?:{_INTEGER}(?:\.[0-9]+)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
_NOT_ZERO = r"(?=[0-9,.]*[1-9])"
NUMBER = (
    rf"(?:(?P<whole>{_INTEGER})[ \t]+(?=[0-9]+[ \t]?/))?"
    rf"(?P<top>{_DECIMAL})"
    rf"(?:[ \t]?/[ \t]?{_NOT_ZERO}(?P<bottom>{_DECIMAL}))?"
)
"""A number without its sign, as a regular expression; `value` reads its groups."""

_ANNOTATION = re.compile(r"<<.*?>>", re.DOTALL)
_MARKER = re.compile(r"#{4,}([^\r\n]*)")
_MARKED = re.compile(
    rf"\s*(?:[A-Za-z]{{1,3}}\s*\.?\s*)?(?P<sign>[-+])?\s*[$\u20ac\u00a3]?\s*(?P<late_sign>[-+])?\s*{NUMBER}"
)
_ANYWHERE = re.compile(
    rf"(?P<sign>(?<![A-Za-z0-9)])[-+])?[$\u20ac\u00a3]?(?P<late_sign>(?<![A-Za-z0-9)])[-+])?{NUMBER}"
)


def normalize(text: str) -> str:
    """`text` with one spelling for each minus, fraction bar, space and digit (NFKC), and `\\$`, `\\%` unescaped.

    Superscripts are dropped first, since NFKC would turn `10 cm²` into a text that ends in the number 2, and a space is
    put between a digit and a fraction such as `½`, since NFKC would turn `9½` into 91/2.
    """
    text = _VULGAR_FRACTION_AFTER_DIGIT.sub(" ", text.translate(_SUPERSCRIPTS))
    text = unicodedata.normalize("NFKC", text).translate(_DASHES).replace("\u2044", "/")
    return text.replace("\\$", "$").replace("\\%", "%")


def has_marker(text: str) -> bool:
    """Whether a run of four or more `#`, GSM8K's answer marker, occurs."""
    return "####" in normalize(text)


def marked(text: str) -> Fraction | None:
    """The number that follows the first marker, on the marker's line; None without a marker or without a number."""
    line = _MARKER.search(normalize(text))
    found = _MARKED.match(line.group(1)) if line else None
    return value(found) if found else None


def last(text: str) -> Fraction | None:
    """The last number of the text outside `<<...>>`; a sign counts if it touches the number and follows no term."""
    found = list(_ANYWHERE.finditer(_ANNOTATION.sub("", normalize(text))))
    return value(found[-1]) if found else None


def value(match: re.Match[str]) -> Fraction | None:
    """The rational that a match of `NUMBER` (with optional groups `sign` and `late_sign`) spells; None if absurd."""
    groups = match.groupdict()
    parts = [groups[name] for name in ("whole", "top", "bottom")]
    if any(part is not None and _is_absurd(part) for part in parts):
        return None
    whole, top, bottom = (Fraction(part.replace(",", "")) if part else None for part in parts)
    assert top is not None
    number = (whole or 0) + top / (bottom or 1)
    negative = (groups.get("sign") == "-") != (groups.get("late_sign") == "-")
    return -number if negative else number


def equal(prediction: Fraction, gold: Fraction) -> bool:
    """|prediction - gold| <= 1e-6 max(1, |gold|), in exact arithmetic."""
    return abs(prediction - gold) <= TOLERANCE * max(Fraction(1), abs(gold))


def _is_absurd(decimal: str) -> bool:
    digits, _, exponent = decimal.lower().partition("e")
    return len(digits) > MAX_DIGITS or len(exponent) > 5 or abs(int(exponent or 0)) > MAX_DIGITS
