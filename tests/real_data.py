"""Real datasets, tokenizers and models for tests, where the machine has them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

VARIABLE = "LOSSBENCH_REAL_DATA"


def real_data(path: str) -> Path:
    """The file or folder `path` of the real data, or skip the test with the reason."""
    root = Path(os.environ.get(VARIABLE) or Path(__file__).resolve().parents[2] / "shared" / "data")
    found = root / path
    if not found.exists():
        pytest.skip(f"{found} is not here; {VARIABLE} names the folder of real data")
    return found
