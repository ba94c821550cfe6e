"""Secrets are taken out of a configuration before it is written where others read it.

By the key's name (`hub_token`, `api-key`), by the looks of a value (tokens of hubs, a password in an address), and by
the environment: a value that equals a secret variable is hidden wherever it stands.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

from lossbench.tracking.files import strict

HIDDEN = "***"
WORDS = frozenset("token key apikey secret password passwd passphrase credential credentials".split())
LOOKS = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{16,}|sk-[A-Za-z0-9_-]{16,}|gh[opsu]_[A-Za-z0-9]{20,}|wandb_v\d_[A-Za-z0-9_-]{16,}"
    r"|AKIA[A-Z0-9]{16})\b"
)
ADDRESS = re.compile(r"(\b[a-z][a-z0-9+.-]*://)[^/\s@]+@", re.IGNORECASE)
SHORTEST = 8  # characters of a variable's value that counts as a secret; "1" or "true" is none


def redacted(value: Any) -> Any:
    """The same plain data, as strict JSON, with secrets as `***`."""
    return _redacted(value, _secret_values())


def _redacted(value: Any, secrets: tuple[str, ...]) -> Any:
    if isinstance(value, Mapping):
        return {
            str(key): HIDDEN if _is_secret(str(key)) and _has_content(inner) else _redacted(inner, secrets)
            for key, inner in value.items()
        }
    if isinstance(value, list | tuple):
        return [_redacted(inner, secrets) for inner in value]
    if isinstance(value, str):
        for secret in secrets:
            value = value.replace(secret, HIDDEN)
        return ADDRESS.sub(rf"\1{HIDDEN}@", LOOKS.sub(HIDDEN, value))
    return strict(value)


def _has_content(value: Any) -> bool:
    """A secret is text, or a list of it; a number under such a key (`token: 4`) says how many."""
    return isinstance(value, str | list | tuple) and bool(value)


def _is_secret(key: str) -> bool:
    return not WORDS.isdisjoint(re.split(r"[^a-z]+", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", key).lower()))


def _secret_values() -> tuple[str, ...]:
    """Values of the variables whose names say that they are secret, the longest first."""
    found = {value for name, value in os.environ.items() if _is_secret(name) and len(value) >= SHORTEST}
    return tuple(sorted(found, key=len, reverse=True))
