"""The Markdown of README and docs as the tests see it: code blocks with their markers, commands, links, headings."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
TOP = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "results/README.md")]
PAGES = [*TOP, *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^(?P<indent> *)(?P<ticks>`{3,})(?P<language>[\w-]*)")
ITEM = re.compile(r"^ {0,3}(?:[*+-]|\d+\.) ")
NOT_RUN = re.compile(r"^\s*<!-- not run: (?P<reason>.+?) -->$")
EXITS = re.compile(r"^\s*<!-- exits (?P<code>\d+) -->$")
LINK = re.compile(
    r"(?<!`)!?\[(?:[^\[\]]|\[[^\[\]]*\])*\]\((?P<target>[^()\s]+)(?:\s+\"[^\"]*\")?\)|<(?P<bare>https?://[^>\s]+)>"
)


IMAGE = re.compile(r"!\[[^\]]*\]\(([^()\s]+)\)")


@dataclass(frozen=True)
class Block:
    """A code block: its language (`indented` for one without a fence), and what the comment before it says."""

    page: Path
    line: int
    language: str
    text: str
    not_run: str | None = None
    exits: int = 0

    @property
    def place(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def names(pages: list[Path]) -> list[str]:
    """What pytest calls them."""
    return [str(page.relative_to(ROOT)) for page in pages]


@cache
def blocks(page: Path) -> tuple[Block, ...]:
    """All code blocks of a page, in order."""
    return tuple(_blocks(page))


def _blocks(page: Path) -> Iterator[Block]:
    lines = page.read_text(encoding="utf-8").splitlines()
    k = 0
    in_list = False  # where indentation continues an item, and is no code
    while k < len(lines):
        if fence := FENCE.match(lines[k]):
            end = next(e for e in range(k + 1, len(lines)) if lines[e].strip() == fence["ticks"])
            before = lines[k - 1] if k else ""
            marker, exits = NOT_RUN.match(before), EXITS.match(before)
            yield Block(
                page,
                k + 1,
                fence["language"],
                textwrap.dedent("\n".join(lines[k + 1 : end])),
                marker["reason"] if marker else None,
                int(exits["code"]) if exits else 0,
            )
            k = end + 1
        elif lines[k].startswith("    ") and not in_list and (k == 0 or not lines[k - 1].strip()):
            end = k
            while end < len(lines) and (lines[end].startswith("    ") or not lines[end].strip()):
                end += 1
            yield Block(page, k + 1, "indented", textwrap.dedent("\n".join(lines[k:end])).strip("\n"))
            k = end
        else:
            if lines[k].strip():
                in_list = bool(ITEM.match(lines[k])) or (in_list and lines[k].startswith(" "))
            k += 1


def commands(block: Block) -> list[str]:
    """The lines of a block that call one of our programs, continued lines joined, without comments."""
    if block.language == "text":
        return []
    joined = re.sub(r"\s*\\\n\s*", " ", block.text)
    found = []
    for line in joined.splitlines():
        command = re.split(r"\s{2,}#|\s#\s", line.strip())[0].strip()
        if re.match(r"(python train\.py|lossbench|make)( |$)", command):
            found.append(command)
    return found


@cache
def prose(page: Path) -> str:
    """The page without its code blocks and code spans."""
    kept, fence = [], None
    for line in page.read_text(encoding="utf-8").splitlines():
        if match := FENCE.match(line):
            fence = None if fence == match["ticks"] else fence or match["ticks"]
        elif fence is None:
            kept.append(re.sub(r"`[^`]*`", "`code`", line))
    return "\n".join(kept)


def links(page: Path) -> list[str]:
    """Targets of all links and pictures of a page, also of pictures that are links."""
    text = prose(page)
    return [match["target"] or match["bare"] for match in LINK.finditer(text)] + pictures(page)


def pictures(page: Path) -> list[str]:
    """Addresses of all pictures of a page."""
    return IMAGE.findall(prose(page))


@cache
def anchors(page: Path) -> frozenset[str]:
    """What `#...` may follow the page's name, as GitHub and the site call its headings."""
    found = set()
    inside = False
    for line in page.read_text(encoding="utf-8").splitlines():
        if FENCE.match(line):
            inside = not inside
        elif not inside and (heading := re.match(r"#{1,6} (.+)", line)):
            text = re.sub(r"[`*]|\[([^\]]*)\]\([^)]*\)", r"\1", heading[1]).strip().lower()
            found.add(re.sub(r"\s", "-", re.sub(r"[^\w\s-]", "", text)))
    return frozenset(found)
