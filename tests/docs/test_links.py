"""Links lead somewhere: to a file of the repository and to a heading in it; those to other hosts are looked at only."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.docs.pages import PAGES, ROOT, anchors, links, names


def broken(page: Path) -> list[str]:
    """Targets of a page that lead nowhere."""
    found = []
    for target in links(page):
        if "://" in target or target.startswith("mailto:"):
            parts = urlsplit(target)
            if parts.scheme != "https" or "." not in (parts.hostname or "") or "localhost" in target:
                found.append(target)
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        if not file.is_relative_to(ROOT) or not file.exists() or (anchor and anchor not in anchors(file)):
            found.append(target)
    return found


@pytest.mark.parametrize("page", PAGES, ids=names(PAGES))
def test_links_lead_somewhere(page: Path) -> None:
    assert broken(page) == []


def test_a_link_that_leads_nowhere_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.docs.test_links.ROOT", tmp_path)
    (tmp_path / "there.md").write_text("# A `good` heading, here\n")
    page = tmp_path / "page.md"
    page.write_text(
        "[a](there.md#a-good-heading-here) [b](there.md#other) [c](nowhere.md) [d](http://example.org) "
        "[e](https://example.org/x) <https://example> [![g](no.png)](there.md) "
        "`[f](code.md)`\n\n```text\n[g](block.md)\n```\n"
    )
    assert broken(page) == ["there.md#other", "nowhere.md", "http://example.org", "https://example", "no.png"]


def test_every_page_can_be_reached() -> None:
    seen, todo = set(), [ROOT / "README.md", ROOT / "docs" / "index.md"]
    while todo:
        page = todo.pop()
        if page in seen or page.suffix != ".md" or not page.is_file():
            continue
        seen.add(page)
        todo += [(page.parent / target.partition("#")[0]).resolve() for target in links(page) if "://" not in target]
    assert [str(page.relative_to(ROOT)) for page in PAGES if page not in seen] == []
