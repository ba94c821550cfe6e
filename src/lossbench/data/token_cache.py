"""Tokenised examples on disk, found again by a hash of everything that they depend on."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lossbench.data.example import Example

FORMAT = 1  # to be raised whenever tokenising itself changes
VARIABLE = "LOSSBENCH_CACHE"

Encoded = list[tuple[list[int], int]]
"""For each example its token ids, without BOS and EOS, and the index of the first one of the target."""


def folder(configured: str | None) -> Path:
    """`paths.cache`, or else the environment's LOSSBENCH_CACHE, or else ~/.cache/lossbench."""
    return Path(configured or os.environ.get(VARIABLE) or Path("~/.cache/lossbench")).expanduser()


def key(examples: Sequence[Example], tokenizer: Any) -> str:
    """A digest of the texts, their boundaries, and the whole tokenizer (vocabulary, merges, every step)."""
    digest = hashlib.sha256(json.dumps([FORMAT, type(tokenizer).__name__]).encode())
    digest.update(tokenizer.backend_tokenizer.to_str().encode())
    for example in examples:
        prompt, target = example.prompt.encode(errors="surrogatepass"), example.target.encode(errors="surrogatepass")
        digest.update(b"%d %d " % (len(prompt), len(target)))
        digest.update(prompt)
        digest.update(target)
    return digest.hexdigest()[:32]


def read(cache: Path, name: str) -> Encoded | None:
    """What was stored under `name`, or None where nothing is or the file is damaged."""
    try:
        with np.load(_file(cache, name), allow_pickle=False) as stored:  # the archive checks its own CRC
            ids, lengths, boundaries = (stored[part] for part in ("ids", "lengths", "boundaries"))
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return None
    if lengths.sum() != len(ids) or len(lengths) != len(boundaries):
        return None
    ends = np.cumsum(lengths)
    pieces = np.split(ids, ends[:-1]) if len(ends) else []
    return [(piece.tolist(), int(boundary)) for piece, boundary in zip(pieces, boundaries, strict=True)]


def write(cache: Path, name: str, encoded: Encoded) -> None:
    """Store atomically; a cache that cannot be written (full or read-only disk) is none, not an error."""
    file = _file(cache, name)
    temporary = None
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=file.parent, suffix=".tmp")
        with os.fdopen(handle, "wb") as stream:
            np.savez(
                stream,
                ids=np.array([token for ids, _ in encoded for token in ids], dtype=np.int32),
                lengths=np.array([len(ids) for ids, _ in encoded], dtype=np.int64),
                boundaries=np.array([boundary for _, boundary in encoded], dtype=np.int64),
            )
        os.replace(temporary, file)
    except OSError:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)


def _file(cache: Path, name: str) -> Path:
    return cache / "tokens" / f"{name}.npz"
