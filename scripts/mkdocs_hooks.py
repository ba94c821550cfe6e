"""What `mkdocs build` does beside its configuration: links that leave docs/ go to the repository, and the menu lists
every loss."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"(?<=\]\()(\.\.?/[^)\s#]+)(#[^)\s]*)?(?=\))")


def on_config(config: Any) -> Any:
    """Put a page of every loss where the menu says `losses/`."""
    names = sorted(file.name for file in (ROOT / "docs" / "losses").glob("*.md"))
    pages = [f"losses/{name}" for name in sorted(names, key=lambda name: (name != "index.md", name))]
    for part in config.nav:
        for entry in next(iter(part.values())) if isinstance(next(iter(part.values())), list) else []:
            if entry == {"Losses": "losses/"}:
                entry["Losses"] = pages
    return config


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """A link such as ../benchmarks/results/head.md works on GitHub; on the site it leads there."""
    place = (ROOT / "docs" / page.file.src_uri).parent
    base = f"{config.repo_url.rstrip('/')}/blob/main/"

    def to_repository(match: re.Match[str]) -> str:
        target = (place / match[1]).resolve()
        if not target.is_relative_to(ROOT) or target.is_relative_to(ROOT / "docs") or not target.exists():
            return match[0]
        return f"{base}{target.relative_to(ROOT)}{match[2] or ''}"

    return LINK.sub(to_repository, markdown)
