"""`lossbench report --watch`: the page loads again by itself, and the reader stays where they were."""

from __future__ import annotations

import re
import threading

import pytest

from lossbench.report import Choices
from lossbench.report.watch import watch
from tests.browser.conftest import console_errors
from tests.report.factory import write_run
from tests.report.test_watch import until

pytestmark = pytest.mark.slow


def test_new_runs_appear_and_filter_and_order_are_kept(browser, tmp_path):
    runs = tmp_path / "runs"
    for seed in range(3):
        write_run(runs / "s", "focal", seed, metrics={"test/em": 0.5 + seed / 10})
    stop, lines = threading.Event(), []
    thread = threading.Thread(
        target=watch, args=([runs], tmp_path / "out", Choices()),
        kwargs={"port": 0, "interval": 0.1, "stop": stop, "say": lines.append},
    )  # fmt: skip
    thread.start()
    try:
        until(lambda: any("runs expected" in line for line in lines))
        browser.get_log("browser")
        browser.get(re.search(r"http://127\.0\.0\.1:\d+/", lines[0]).group())
        browser.find_element("id", "filter").send_keys("focal")
        for _ in range(2):
            browser.find_elements("css selector", "#runs-table thead button")[2].click()
        browser.execute_script("window.scrollTo({top: 300, behavior: 'instant'}); window.isOld = true")
        write_run(runs / "s", "emo", 0, metrics={"test/em": 0.9})
        until(lambda: not browser.execute_script("return window.isOld === true"))
        until(lambda: browser.execute_script("return document.readyState") == "complete")
        assert "emo" in browser.find_element("id", "results").text
        assert browser.find_element("id", "filter").get_attribute("value") == "focal"
        heads = browser.find_elements("css selector", "#runs-table thead th")
        assert heads[2].get_attribute("aria-sort") == "descending"
        assert browser.execute_script("return window.scrollY") == 300
        assert console_errors(browser) == []
    finally:
        stop.set()
        thread.join(timeout=20)
    until(lambda: "has ended" in browser.find_element("id", "live").text)
