"""The page as a reader has it: sorting, filtering, keyboard, print, widths, colours, and nothing from outside."""

from __future__ import annotations

from pathlib import Path

import pytest

from lossbench.report import build
from tests.browser.conftest import HOSTILE, NOW, console_errors, fill, resize
from tests.report.test_watch import until

pytestmark = pytest.mark.slow
COLUMN = {"State": 0, "Loss": 1, "Seed": 2}


@pytest.fixture(scope="module")
def page(browser, tmp_path_factory) -> str:
    root = tmp_path_factory.mktemp("study")
    (file,) = build([fill(root / "runs" / "demo")], root / "out", ["html"], now=NOW).files
    return file.as_uri()


@pytest.fixture(scope="module")
def wide_page(browser, tmp_path_factory) -> str:
    """Six datasets: coverage, ranks and their drawing are there too."""
    root = tmp_path_factory.mktemp("studies")
    study = fill(root / "runs" / "demo", ("a", "b", "c", "d", "e", "f"))
    (file,) = build([study], root / "out", ["html"], now=NOW).files
    return file.as_uri()


@pytest.fixture
def opened(browser, page):
    """The page, freshly loaded at 1280 pixels."""
    resize(browser, 1280)
    browser.get(page)
    browser.get_log("browser")
    return browser


def column(browser, place: int, visible: bool = True) -> list[str]:
    """The texts of one column of the runs table, from top to bottom."""
    return browser.execute_script(
        "return [...document.querySelectorAll('#runs-table tbody tr')].filter(r => !arguments[1] || !r.hidden)"
        ".map(r => r.cells[arguments[0]].textContent.trim())", place, visible,
    )  # fmt: skip


def head(browser, name: str):
    heads = browser.find_elements("css selector", "#runs-table thead th")
    return next(h for h in heads if h.text.split("\n")[0].strip().startswith(name))


def type_filter(browser, text: str) -> None:
    field = browser.find_element("id", "filter")
    field.clear()
    field.send_keys(text or " ")


@pytest.mark.parametrize("fixture", ["page", "wide_page"])
def test_the_page_loads_without_a_word_in_the_console(browser, request, fixture):
    address = request.getfixturevalue(fixture)
    browser.get_log("browser")
    browser.get(address)
    assert console_errors(browser) == []
    assert browser.title == "demo · lossbench report"


def test_nothing_is_loaded_from_anywhere(opened):
    assert opened.execute_script("return performance.getEntriesByType('resource').length") == 0
    links = opened.execute_script("return [...document.querySelectorAll('a')].map(a => a.getAttribute('href'))")
    assert links and all(link.startswith("#") for link in links)  # these runs are in no wandb


def test_runs_are_sorted_by_a_click_and_back_by_another(opened):
    button = head(opened, "Exact match").find_element("tag name", "button")
    place = opened.execute_script("return arguments[0].closest('th').cellIndex", button)
    button.click()
    rising = [value for value in column(opened, place) if value]
    assert [float(v) for v in rising] == sorted(float(v) for v in rising)
    assert head(opened, "Exact match").get_attribute("aria-sort") == "ascending"
    assert column(opened, place)[-1] == ""  # runs without a value come last, whatever the order
    button.click()
    falling = [value for value in column(opened, place) if value]
    assert falling == rising[::-1] and column(opened, place)[-1] == ""
    head(opened, "Loss").find_element("tag name", "button").click()
    assert column(opened, COLUMN["Loss"]) == sorted(column(opened, COLUMN["Loss"]), key=str.lower)
    assert head(opened, "Exact match").get_attribute("aria-sort") is None


def test_runs_are_filtered_by_words_and_by_their_absence(opened):
    total = len(column(opened, COLUMN["Loss"], visible=False))
    type_filter(opened, "focal")
    assert set(column(opened, COLUMN["Loss"])) == {"focal"}
    assert opened.find_element("id", "shown").text == f"3 of {total} runs"
    type_filter(opened, "finished -focal -cross_entropy")
    assert column(opened, COLUMN["Loss"]) and not {"focal", "cross_entropy"} & set(column(opened, COLUMN["Loss"]))
    assert all("finished" in state for state in column(opened, COLUMN["State"]))
    type_filter(opened, "no such run")
    assert column(opened, COLUMN["Loss"]) == []
    type_filter(opened, "")
    assert len(column(opened, COLUMN["Loss"])) == total


def pasted(browser) -> str:
    """What the clipboard holds, put into the filter as a reader would."""
    from selenium.webdriver.common.keys import Keys

    field = browser.find_element("id", "filter")
    field.clear()
    field.send_keys(Keys.CONTROL, "v")
    return field.get_attribute("value")


@pytest.mark.parametrize("has_clipboard", [True, False])
def test_the_place_of_a_run_is_copied_by_the_keyboard(opened, has_clipboard):
    """From a file: with the clipboard of modern pages, and in the old way where a browser denies it."""
    from selenium.webdriver.common.keys import Keys

    if not has_clipboard:
        opened.execute_script("Object.defineProperty(navigator, 'clipboard', {value: undefined})")
    row = next(r for r in opened.find_elements("css selector", "#runs-table tbody tr") if "/emo-tiny" in r.text)
    button = row.find_element("css selector", "button.copy")
    assert button.get_attribute("aria-label") == "copy the path"
    button.send_keys(Keys.ENTER)
    until(lambda: button.text == "copied")
    assert opened.execute_script("return document.activeElement === arguments[0]", button)
    place = opened.execute_script("return arguments[0].cells[arguments[0].cells.length - 1].lastChild.textContent", row)
    assert pasted(opened) == place.strip() and place.strip().startswith("demo/emo-tiny-arithmetic-s0")
    assert console_errors(opened) == []


def test_the_address_of_a_run_in_wandb_is_copied_and_a_missing_run_has_nothing_to_copy(browser, tmp_path):
    import json

    from tests.report.factory import write_plan, write_run

    write_plan(tmp_path / "s", ["focal"], [0, 1])
    folder = write_run(tmp_path / "s", "focal", 0, metrics={"test/em": 0.5})
    record = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**record, "wandb": {"url": "https://wandb.ai/t/p/runs/1"}}))
    (file,) = build([tmp_path / "s"], tmp_path / "out", ["html"], now=NOW).files
    browser.get(file.as_uri())
    labels = [b.get_attribute("aria-label") for b in browser.find_elements("css selector", "button.copy")]
    assert labels == ["copy the path", "copy the address in wandb"]
    button = browser.find_elements("css selector", "button.copy")[1]
    button.click()
    until(lambda: button.text == "copied")
    assert pasted(browser) == "https://wandb.ai/t/p/runs/1"


def test_sorting_keeps_the_filter(opened):
    type_filter(opened, "focal")
    head(opened, "Seed").find_element("tag name", "button").click()
    assert column(opened, COLUMN["Seed"]) == ["0", "1", "2"] and set(column(opened, COLUMN["Loss"])) == {"focal"}


def test_everything_is_reached_by_the_keyboard(opened):
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys

    reached = []
    for _ in range(80):
        ActionChains(opened).send_keys(Keys.TAB).perform()
        reached.append(
            opened.execute_script(
                "const e = document.activeElement; return e.id || e.className || e.tagName + e.textContent"
            )
        )
    words = " ".join(reached)
    assert reached[0] == "skip" and "filter" in reached and "BUTTONLoss" in words and "SUMMARY" in words
    opened.execute_script("document.getElementById('filter').focus()")
    ActionChains(opened).send_keys("focal").send_keys(Keys.TAB).perform()
    while opened.execute_script("return document.activeElement.tagName") != "BUTTON":
        ActionChains(opened).send_keys(Keys.TAB).perform()
    ActionChains(opened).send_keys(Keys.ENTER).perform()
    assert opened.execute_script("return document.querySelector('#runs-table [aria-sort]') !== null")
    outline = opened.execute_script("return getComputedStyle(document.activeElement).outlineStyle")
    assert outline != "none"  # what has the focus is seen


def test_names_are_inert(opened):
    assert HOSTILE in column(opened, COLUMN["Loss"])
    assert opened.title != "1" and opened.find_elements("tag name", "img") == []
    assert len(opened.find_elements("tag name", "script")) == 1


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("fixture", ["page", "wide_page"])
def test_the_page_fits_its_width(browser, request, fixture, width, tmp_path):
    resize(browser, width)
    browser.get(request.getfixturevalue(fixture))
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    picture = tmp_path / f"{fixture}-{width}.png"
    assert browser.save_screenshot(str(picture)) and picture.stat().st_size > 20_000


def contrast(browser, selector: str) -> float:
    """WCAG contrast of an element's text against the background that it stands on."""
    return browser.execute_script(
        """
        const rgb = (text) => text.match(/[\\d.]+/g).map(Number);
        const light = ([r, g, b]) => [r, g, b].map(v => v / 255)
          .map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
          .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
        let element = document.querySelector(arguments[0]);
        const front = light(rgb(getComputedStyle(element).color));
        const ground = (e) => rgb(getComputedStyle(e).backgroundColor);
        while (element && (ground(element)[3] ?? 1) === 0) element = element.parentElement;
        const back = light(element ? ground(element) : [255, 255, 255]);
        return (Math.max(front, back) + 0.05) / (Math.min(front, back) + 0.05);
        """,
        selector,
    )


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read_in_light_and_dark(opened, scheme):
    features = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    opened.execute_cdp_cmd("Emulation.setEmulatedMedia", features)
    try:
        back = opened.execute_script(
            "return getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)[0]"
        )
        assert (back < 60) == (scheme == "dark")
        for selector in (
            ".lede",
            ".coverage .good",
            ".coverage .bad",
            ".absent",
            ".legend-line",
            ".runs td:last-child",
            "nav a",
            ".results td",
        ):
            assert contrast(opened, selector) >= 4.5, selector
    finally:
        opened.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def test_series_can_be_told_apart_without_red_and_green(opened):
    """Okabe and Ito's colours under simulated deuteranopia and protanopia (Machado et al. 2009)."""
    import itertools

    script = (
        "return [1,2,3,4,5,6].map(i => getComputedStyle(document.documentElement).getPropertyValue('--s' + i).trim())"
    )
    colours = [tuple(int(c[i : i + 2], 16) / 255 for i in (1, 3, 5)) for c in opened.execute_script(script)]
    matrices = {
        "deuteranopia": [(0.3673, 0.8606, -0.2280), (0.2801, 0.6725, 0.0474), (-0.0118, 0.0429, 0.9689)],
        "protanopia": [(0.1523, 1.0526, -0.2049), (0.1145, 0.7863, 0.0992), (-0.0039, -0.0481, 1.0520)],
    }
    for matrix in matrices.values():
        seen = [[sum(m * c for m, c in zip(row, colour, strict=True)) for row in matrix] for colour in colours]
        for a, b in itertools.combinations(seen, 2):
            assert sum((x - y) ** 2 for x, y in zip(a, b, strict=True)) ** 0.5 > 0.08


def test_it_prints_whole(opened):
    import base64

    opened.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    try:
        assert opened.execute_script("return getComputedStyle(document.querySelector('nav')).display") == "none"
        assert opened.execute_script("return getComputedStyle(document.querySelector('.tools')).display") == "none"
    finally:
        opened.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
    printed = base64.b64decode(opened.execute_cdp_cmd("Page.printToPDF", {"printBackground": True})["data"])
    assert printed.startswith(b"%PDF") and printed.count(b"/Type /Page\n") + printed.count(b"/Type /Page ") >= 3


def test_it_is_whole_without_scripts(browser, page):
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        browser.get(page)
        source = Path(page.removeprefix("file://")).read_text()
        assert browser.find_element("id", "runs-table").text.count("focal") >= 3
        assert not browser.find_element("class name", "tools").is_displayed() and "hidden" in source
    finally:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


def test_every_section_of_a_wide_study_is_there(browser, wide_page):
    browser.get(wide_page)
    sections = browser.execute_script("return [...document.querySelectorAll('section[id]')].map(s => s.id)")
    for name in (
        "results",
        "coverage",
        "ranks",
        "differences",
        "figures",
        "samples",
        "costs",
        "settings",
        "runs",
        "method",
    ):
        assert name in sections, name
    assert browser.find_elements("css selector", "#ranks .clique")  # six settings: a critical difference is drawn
    texts = [element.text for element in browser.find_elements("css selector", "#figures h2")]
    assert [text.split(" ")[0] for text in texts] == ["Learning", "Cost", "Reliability"]
