"""What the docs say about the demo is what results/demo, the committed report of `make demo`, says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.pages import PAGES, ROOT, names

REPORT = ROOT / "results" / "demo" / "report.md"
LOSSES = ("cross_entropy", "emo", "focal", "lovasz")
NUMBER = re.compile(r"[-+×]?\d+\.\d+")
TOLD = ("docs/tutorial.md", "docs/howto/reading-the-report.md")  # pages that show the demo's table
PAGES_WITH_ROWS = [page for page in PAGES if str(page.relative_to(ROOT)) in TOLD]


def rows(text: str) -> list[tuple[str, tuple[str, ...]]]:
    """(loss, its numbers) of every line that begins, but for marks of a table, with the name of a loss of the demo."""
    found = []
    for line in text.replace("\\", "").splitlines():
        match = re.match(rf"[|\s]*({'|'.join(LOSSES)})(?![\w-])(.*)", line)
        if match and "1/1" not in line:  # the tutorial's own run
            found.append((match[1], tuple(NUMBER.findall(match[2].replace("−", "-")))))
    return [(loss, numbers) for loss, numbers in found if len(numbers) > 1]


def is_in(numbers: tuple[str, ...], known: tuple[str, ...]) -> bool:
    """All of them, in this order; a page may show fewer columns."""
    rest = iter(known)
    return all(number in rest for number in numbers)


@pytest.mark.parametrize("page", PAGES_WITH_ROWS, ids=names(PAGES_WITH_ROWS))
def test_numbers_of_the_demo_are_those_of_its_report(page: Path) -> None:
    known = rows(REPORT.read_text(encoding="utf-8"))
    shown = rows(page.read_text(encoding="utf-8"))
    assert len(shown) >= len(LOSSES)
    for loss, numbers in shown:
        assert any(loss == other and is_in(numbers, whole) for other, whole in known), f"{page.name}: {loss} {numbers}"


def test_a_number_that_the_report_does_not_have_is_found() -> None:
    known = rows("| emo | 3/3 | **36.5** ± 4.8 | <u>1.100</u> ± 0.012 | 33.3 ± 0.8 |")
    ((_, whole),) = known
    assert is_in(("36.5", "4.8", "1.100"), whole) and is_in(("36.5", "33.3"), whole)
    assert not is_in(("36.4", "4.8"), whole) and not is_in(("4.8", "36.5"), whole)
