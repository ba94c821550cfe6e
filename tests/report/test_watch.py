import re
import threading
import time
import urllib.error
import urllib.request

import pytest

from lossbench.errors import ConfigError
from lossbench.report import Choices
from lossbench.report.watch import Live, make_server, watch
from tests.report.factory import write_run


def fetch(address, **headers):
    with urllib.request.urlopen(urllib.request.Request(address, headers=headers), timeout=10) as answer:
        return answer.read().decode(), answer.headers


def until(condition, seconds=30.0):
    """Wait for what another thread does; a test that would wait for ever fails."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.fixture
def watched(tmp_path):
    """(address, runs folder, lines said) of a report that is being watched."""
    stop, lines = threading.Event(), []
    runs = tmp_path / "runs"
    runs.mkdir()
    thread = threading.Thread(
        target=watch, args=([runs], tmp_path / "out", Choices()),
        kwargs={"port": 0, "interval": 0.05, "stop": stop, "say": lines.append},
    )  # fmt: skip
    thread.start()
    until(lambda: lines)
    yield re.search(r"http://127\.0\.0\.1:\d+", lines[0]).group(), runs, lines
    stop.set()
    thread.join(timeout=20)
    assert not thread.is_alive()


def test_the_page_waits_for_runs_and_follows_them(watched, tmp_path):
    address, runs, lines = watched
    until(lambda: "There are no runs yet; the page waits for them." in lines)
    page, _ = fetch(f"{address}/")
    waiting, _ = fetch(f"{address}/version")
    assert "No runs found" in page and f'data-version="{waiting}"' in page

    write_run(runs / "s", "focal", 0, metrics={"test/em": 0.5})
    until(lambda: fetch(f"{address}/version")[0] != waiting)
    page, headers = fetch(f"{address}/")
    assert "focal" in page and headers["Cache-Control"] == "no-store"
    assert "connect-src 'self'" in page
    until(lambda: (tmp_path / "out" / "report.html").is_file())
    assert "connect-src" not in (tmp_path / "out" / "report.html").read_text()

    write_run(runs / "s", "emo", 0, metrics={"test/em": 0.6})
    until(lambda: "emo" in fetch(f"{address}/")[0])
    until(lambda: any(line.startswith("2 runs expected") for line in lines))


def test_unchanged_runs_keep_the_version(watched, tmp_path):
    address, runs, _ = watched
    write_run(tmp_path / "made", "focal", 0, metrics={"test/em": 0.5})
    (tmp_path / "made").rename(runs / "s")  # whole at once: a look in between would see another run
    until(lambda: "focal" in fetch(f"{address}/")[0])
    first, _ = fetch(f"{address}/version")
    time.sleep(0.5)
    assert fetch(f"{address}/version")[0] == first


def test_nothing_but_the_report_is_served(watched, tmp_path):
    address, runs, _ = watched
    write_run(runs / "s", "focal", 0, metrics={"test/em": 0.5})
    (tmp_path / "out").mkdir(exist_ok=True)
    (tmp_path / "out" / "secret.txt").write_text("mine")
    until(lambda: "focal" in fetch(f"{address}/")[0])
    assert "focal" in fetch(f"{address}/report.html")[0]
    for path in ("/secret.txt", "/../secret.txt", "/%2e%2e/secret.txt", "/.cache/report.json", "/runs"):
        with pytest.raises(urllib.error.HTTPError) as error:
            fetch(f"{address}{path}")
        assert error.value.code == 404


def test_foreign_names_of_this_machine_are_not_answered(watched):
    address, _, _ = watched
    with pytest.raises(urllib.error.HTTPError) as error:
        fetch(f"{address}/", Host="evil.example:80")
    assert error.value.code == 404
    port = address.rpartition(":")[2]
    assert "lossbench" in fetch(f"{address}/", Host=f"localhost:{port}")[0]


def test_a_port_that_is_taken_is_said(tmp_path):
    server = make_server(Live(), 0)
    try:
        with pytest.raises(ConfigError, match="--port"):
            watch([tmp_path], tmp_path / "out", Choices(), port=server.server_address[1])
    finally:
        server.server_close()


def test_an_interval_must_be_positive(tmp_path):
    with pytest.raises(ConfigError, match="--interval 0"):
        watch([tmp_path], tmp_path / "out", Choices(), interval=0.0)
