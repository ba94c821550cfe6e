"""Draw the top of a report's page as a PNG, with headless Chromium (Debian: apt-get install chromium).

python scripts/picture.py                                        # results/demo/report.html -> docs/images/report.png
python scripts/picture.py runs/report.html picture.png --height 900
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "results" / "demo" / "report.html"
PICTURE = ROOT / "docs" / "images" / "report.png"
MOST_BYTES = 300_000  # what a reader of the README downloads
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def draw(page: Path, picture: Path, width: int = 1280, height: int = 1040) -> None:
    """Write `picture`, width x height pixels, light colours.

    Raises:
        SystemExit: there is no such page, no browser, or the browser drew nothing; with a sentence.
    """
    if not page.is_file():
        sys.exit(f"{page} is not there; `make demo` writes it.")
    browser = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if browser is None:
        sys.exit(f"None of {', '.join(BROWSERS)} is installed (Debian: apt-get install chromium).")
    picture.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        drawn = Path(folder) / "page.png"
        command = [
            browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run",
            "--disable-background-networking", "--disable-sync", "--disable-component-update",
            "--force-device-scale-factor=1", "--force-prefers-reduced-motion",
            f"--user-data-dir={folder}/profile", f"--window-size={width},{height}", f"--screenshot={drawn}",
            page.resolve().as_uri(),
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        if done.returncode or not drawn.is_file():
            sys.exit(f"{browser} drew nothing: {done.stderr.strip()[-500:]}")
        written = picture.with_name(f"{picture.name}.tmp")
        _reduce(drawn, written)
        written.replace(picture)


def _reduce(drawn: Path, written: Path) -> None:
    """A page of text and lines has few colours: a palette of 256 is a third of the bytes and looks the same."""
    from PIL import Image

    with Image.open(drawn) as image:
        image.convert("RGB").quantize(256, dither=Image.Dither.NONE).save(written, format="PNG", optimize=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("page", type=Path, nargs="?", default=PAGE)
    parser.add_argument("picture", type=Path, nargs="?", default=PICTURE)
    parser.add_argument("--width", type=int, default=1280)
    parser.add_argument("--height", type=int, default=1040)
    chosen = parser.parse_args()
    draw(chosen.page, chosen.picture, chosen.width, chosen.height)
    size = chosen.picture.stat().st_size
    print(f"{chosen.picture}: {chosen.width} x {chosen.height}, {size / 1000:.0f} kB")
    if size > MOST_BYTES:
        sys.exit(f"That is more than {MOST_BYTES // 1000} kB; choose a smaller --height.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
