"""Where the packaged YAML lies: inside the wheel, or beside `src/` in a checkout."""

from __future__ import annotations

from pathlib import Path

PACKAGE = Path(__file__).parent


def folder(name: str) -> Path:
    """The folder `conf` or `sweeps`."""
    packaged = PACKAGE / name
    return packaged if packaged.is_dir() else PACKAGE.parents[1] / name


def sweeps() -> dict[str, Path]:
    """Studies by name: those of the package, and those of `./sweeps`, which win."""
    places = [folder("sweeps"), Path.cwd() / "sweeps"]
    return {file.stem: file for place in places for file in sorted(place.glob("*.yaml"))}
