"""The documentation builds as a site in which every link, anchor and menu entry is right."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import ROOT


@pytest.mark.slow
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    pytest.importorskip("material", reason="pip install 'lossbench[docs]'")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "site" / "tutorial.html").read_text(encoding="utf-8")
    assert "The first hour" in page and 'href="losses/focal.html"' in page
    assert "github.com/lossbench/lossbench/blob/main/results/demo/report.md" in page
    for address in ("fonts.googleapis", "fonts.gstatic"):
        assert address not in page
