"""MathQA's options, which one string holds in two spellings: `a ) 38 , b ) 27.675` and `['a ) 38', 'b ) 27.675']`."""

from __future__ import annotations

import ast
import re
from fractions import Fraction
from string import ascii_lowercase

from lossbench.data import numbers
from lossbench.errors import DataError

_MARKED_OPTION = re.compile(r"\s*([a-z])\s*\)\s*(?:\1\s*\)\s*)*(.*?)\s*", re.DOTALL)
"""Some rows carry a marker twice: `c ) c ) 33`."""
_CURRENCY = r"(?:[$\u20ac\u00a3]|(?:rs|s|usd|euros?|re)\b)\s*\.?"
_UNIT_WORD = r"(?!(?:and|or|to|by|sqrt|pi|x)\b)(?:[a-z]{2,}|[mgslhc$%\u20ac\u00a3]|\u00b0)"
_UNIT = rf"{_UNIT_WORD}(?:\s*[./]?\s*{_UNIT_WORD}){{0,3}}(?:\s*\^?\s*[23])?"
_GROUPED = r"(?![0-9]*,(?![0-9]{3}(?![0-9])))(?![0-9]{4,},)"
_ONE_NUMBER = re.compile(
    rf"\s*(?:{_CURRENCY})?\s*(?P<sign>[-+])?\s*(?:{_CURRENCY})?\s*{_GROUPED}{numbers.NUMBER}\s*(?:{_UNIT})?\s*\.?\s*",
    re.IGNORECASE,
)


def parse_options(options: str) -> list[str]:
    """The texts of the options in the order of their letters, from either spelling.

    Options are told apart by their letter markers, not by commas: `e ) 1,001` is one option. Raises `DataError` where
    no two options are found.
    """
    parts = _list_items(options) or _marked_parts(options)
    texts = [found.group(2) if (found := _MARKED_OPTION.fullmatch(part)) else part.strip() for part in parts]
    if len(texts) < 2:
        raise DataError(
            f"No options like 'a ) 38 , b ) 27' could be read from {options!r}: mend this row of the dataset."
        )
    return texts


def option_number(option: str) -> str | None:
    """The exact value of an option that is one number as a whole, as `Fraction` writes it (`"25/2"`), otherwise None.

    Allowed around the number are a currency before it and a unit or per cent after it; thousands come in groups of
    three. `none of these`, `2 : 3`, `3 hours 20 min` and `5 x` are no numbers: such rows have no place in exact match.
    """
    found = _ONE_NUMBER.fullmatch(numbers.normalize(option))
    number: Fraction | None = numbers.value(found) if found else None
    return None if number is None else str(number)


def _list_items(options: str) -> list[str]:
    if not options.lstrip().startswith("["):
        return []
    try:
        items = ast.literal_eval(options.strip())
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return []
    return [str(item) for item in items]


def _marked_parts(options: str) -> list[str]:
    starts: list[int] = []
    position = 0
    for name in ascii_lowercase:
        found = re.compile(rf"(?:^|[,\['\"])\s*(?={name}\s*\))").search(options, position)
        if found is None:
            break
        starts.append(found.end())
        position = found.end() + 1
    ends = [*starts[1:], len(options)]
    return [options[start:end].rstrip(" \t\r\n,") for start, end in zip(starts, ends, strict=False)]
