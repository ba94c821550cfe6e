"""What the scripts share that write a page of the reference."""

from __future__ import annotations

import sys
from pathlib import Path


def write_or_check(page: Path, text: str, name: str, script: str) -> int:
    """Write a page; with `--check` on the command line say on stderr if it is not current. Returns the exit code."""
    if "--check" in sys.argv[1:]:
        if is_stale := not page.is_file() or page.read_text(encoding="utf-8") != text:
            print(f"{name} is not current. Run: python {script}", file=sys.stderr)
        return int(is_stale)
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(text, encoding="utf-8")
    return 0
