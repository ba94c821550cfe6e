"""`make picture` draws the README's picture."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.docs.test_reference import script


@pytest.mark.slow
def test_a_page_is_drawn_at_the_size_that_is_asked_for(tmp_path: Path) -> None:
    made = script("picture")
    if not any(map(shutil.which, made.BROWSERS)):
        pytest.skip("chromium is not here (Debian: apt-get install chromium)")
    page = tmp_path / "page.html"
    page.write_text("<body style='margin:0;background:#f00'></body>")
    picture = tmp_path / "images" / "page.png"
    made.draw(page, picture, width=600, height=400)
    from PIL import Image

    with Image.open(picture) as image:
        assert image.size == (600, 400)
        assert image.convert("RGB").getpixel((300, 200)) == (255, 0, 0)


def test_a_page_that_is_not_there_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="make demo"):
        script("picture").draw(tmp_path / "page.html", tmp_path / "page.png")
