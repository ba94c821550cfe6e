"""Errors that are the user's to mend: one sentence, no traceback.

Every message says what was wrong, its value, where it came from and what to do. Anything that is not a
`LossbenchError` is a bug in lossbench or in a library, and keeps its traceback.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable
from difflib import get_close_matches


class LossbenchError(Exception):
    """Base class; `exit_code` is what the command line returns."""

    exit_code = 1


class ConfigError(LossbenchError):
    """A key, value or combination in the configuration cannot work; found before any work starts."""

    exit_code = 2


class DataError(LossbenchError):
    """A dataset is missing, empty, broken or does not fit the model."""


class ModelError(LossbenchError):
    """A model or tokenizer cannot be loaded."""


class DivergedError(LossbenchError):
    """The loss or a gradient became NaN or infinite during training."""


REFUSALS = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.ENOTDIR, errno.ENAMETOOLONG}


class RefusedError(LossbenchError):
    """The file system refuses a file or folder: no permission, no such place, a full disk."""

    exit_code = 5


def refused(error: OSError) -> RefusedError | None:
    """The sentence for a file system that refuses; None for every other `OSError`, which keeps its traceback."""
    if error.errno not in REFUSALS or error.filename is None:
        return None
    return RefusedError(f"{error.filename}: {error.strerror}. Choose another place, or make this one writable.")


def nearest(name: str, known: Iterable[str]) -> str:
    """` Did you mean 'focal'?`, or ` Known: ...` where nothing is near, for the end of an error message."""
    known = sorted(known)
    close = get_close_matches(name, known, n=3, cutoff=0.5)
    if close:
        return f" Did you mean {' or '.join(repr(c) for c in close)}?"
    return f" Known: {', '.join(known)}." if known else ""
