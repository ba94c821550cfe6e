"""The report's page in headless Chromium (Debian's chromium and chromium-driver), driven by selenium."""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.report.factory import answers, write_plan, write_run

NOW = 1_800_000_000.0
HOSTILE = '<img src=x onerror="document.title=1"><script>document.title=1</script>'
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--hide-scrollbars",
    "--force-prefers-reduced-motion",
)  # fmt: skip


def make_driver(profile: Path, width: int = 1280, height: int = 900, flags: tuple[str, ...] = ()):
    """A browser with a profile of its own; the test is skipped where it, its driver or selenium is not installed."""
    selenium = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    driver = shutil.which("chromedriver")
    if chromium is None or driver is None:
        pytest.skip("chromium and chromedriver are not here (Debian: apt-get install chromium chromium-driver)")
    options = selenium.ChromeOptions()
    options.binary_location = chromium
    for flag in (*FLAGS, f"--user-data-dir={profile}", f"--window-size={width},{height}", *flags):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    return selenium.Chrome(options=options, service=selenium.ChromeService(executable_path=driver))


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator:
    driver = make_driver(tmp_path_factory.mktemp("profile"))
    driver.set_page_load_timeout(60)
    yield driver
    driver.quit()


def resize(browser, width: int, height: int = 900) -> None:
    """A viewport of exactly this size; a window cannot be narrower than 500 pixels."""
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


def console_errors(browser) -> list[str]:
    return [entry["message"] for entry in browser.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]


def fill(root: Path, datasets: tuple[str, ...] = ("arithmetic",)) -> Path:
    """A study with all that the page can show: whole, failed and missing runs, curves, answers, a hostile name."""
    losses = ("cross_entropy", "focal", "emo", HOSTILE)
    write_plan(root, ["cross_entropy", "focal", "emo", "lovasz"], [0, 1, 2])
    for column, dataset in enumerate(datasets):
        for place, loss in enumerate(losses):
            for seed in range(3):
                em = 0.4 + 0.05 * place - 0.02 * column + 0.01 * seed
                rows = [
                    {**row, "mean_logprob": -0.2 * (1 + number % 5)}
                    for number, row in enumerate(answers(2 + place % 4))
                ]
                metrics = {
                    "test/em": em, "test/ppl": math.exp(1 - em), "val/nll": 1.1 - em, "time/train_s": 60 + 9 * place,
                    "time/eval_s": 5.0, "perf/tokens_per_s": 4000.0 - 100 * place,
                }  # fmt: skip
                write_run(root, loss, seed, metrics=metrics, examples=rows, dataset=dataset)
    error = {"type": "DivergedError", "message": "the gradient became NaN at step 40"}
    write_run(root, "lovasz", 0, status="failed", error=error)
    return root
