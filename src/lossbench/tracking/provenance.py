"""Which code and machine made a number."""

from __future__ import annotations

import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGES = ("lossbench", "torch", "lightning", "transformers", "peft", "datasets", "wandb")


def versions() -> dict[str, str]:
    """Installed versions of what can change a number, and Python's."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def git() -> dict[str, str | bool] | None:
    """Commit of the checkout that this package runs from, and whether it was changed; None outside a checkout."""
    here = Path(__file__).parent

    def ask(*arguments: str) -> str | None:
        try:
            done = subprocess.run(["git", "-C", str(here), *arguments], capture_output=True, text=True, timeout=10)
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    # An installed package may lie inside somebody else's repository: only a tracked file proves that it is ours.
    if ask("ls-files", "--error-unmatch", str(Path(__file__))) is None or (commit := ask("rev-parse", "HEAD")) is None:
        return None
    return {"commit": commit, "dirty": bool(ask("status", "--porcelain", "--untracked-files=no"))}
