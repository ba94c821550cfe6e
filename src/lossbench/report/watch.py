"""`lossbench report --watch`: the page on 127.0.0.1, made again whenever the runs change.

The page asks for the version of itself every few seconds and loads again when it is another one; scroll position,
filter and order of the runs are kept. Nothing is served beyond this machine, and no file but the report's own.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterable, Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

from lossbench.errors import ConfigError, LossbenchError
from lossbench.report import memo, sources
from lossbench.report.build import Report, build
from lossbench.report.choices import Choices
from lossbench.report.collect import state_counts
from lossbench.report.errors import NoRunsError

HOST = "127.0.0.1"
VERSION = b"@VERSION@"  # in the page's root element; the page compares it with what the server says
KINDS = {
    ".html": "text/html; charset=utf-8", ".md": "text/markdown; charset=utf-8", ".csv": "text/csv; charset=utf-8",
    ".json": "application/json", ".tex": "text/plain; charset=utf-8", ".txt": "text/plain; charset=utf-8",
    ".svg": "image/svg+xml", ".pdf": "application/pdf", ".parquet": "application/octet-stream",
}  # fmt: skip


class Live:
    """What is served now: the page, its version, and the report's files by name. Safe to read from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._page = b""
        self._version = ""
        self._files: dict[str, Path] = {}

    def show(self, page: str, files: dict[str, Path] | None = None) -> None:
        """Serve another page from now on."""
        data = page.encode("utf-8")
        version = hashlib.sha256(data).hexdigest()[:16]
        with self._lock:
            self._page, self._version = data.replace(VERSION, version.encode(), 1), version
            self._files = files or {}

    def answer(self, path: str) -> tuple[bytes, str] | None:
        """(content, kind) of a path; None where there is nothing."""
        with self._lock:
            page, version, file = self._page, self._version, self._files.get(path.removeprefix("/"))
        if path == "/":
            return page, KINDS[".html"]
        if path == "/version":
            return version.encode(), "text/plain; charset=utf-8"
        try:
            return (file.read_bytes(), KINDS.get(file.suffix, "application/octet-stream")) if file else None
        except OSError:
            return None


def make_server(live: Live, port: int) -> ThreadingHTTPServer:
    """A server on 127.0.0.1 that is not running yet; port 0 takes a free one.

    Raises:
        ConfigError: the port is taken.
    """

    class Handler(BaseHTTPRequestHandler):
        server_version = "lossbench"
        sys_version = ""

        def do_GET(self) -> None:
            self._send(with_body=True)

        def do_HEAD(self) -> None:
            self._send(with_body=False)

        def _send(self, with_body: bool) -> None:
            # Another site's name may resolve to 127.0.0.1 (DNS rebinding): only our own names are answered.
            host = self.headers.get("Host", "").rsplit(":", 1)[0]
            found = live.answer(unquote(urlsplit(self.path).path)) if host in (HOST, "localhost") else None
            body, kind = found or (b"There is nothing here.\n", "text/plain; charset=utf-8")
            self.send_response(HTTPStatus.OK if found else HTTPStatus.NOT_FOUND)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Cache-Control", "no-store")
            self.send_header("X-Content-Type-Options", "nosniff")
            self.end_headers()
            if with_body:
                self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Requests are not worth a line in the terminal."""

    try:
        server = ThreadingHTTPServer((HOST, port), Handler)
    except OSError as error:
        raise ConfigError(
            f"--port {port} cannot be used: {error.strerror or error}. Name another one, or 0 for any that is free."
        ) from None
    server.daemon_threads = True
    return server


def watch(
    paths: Sequence[str | Path],
    out: Path,
    choices: Choices,
    options: sources.Options = sources.DEFAULT,
    formats: Iterable[str] | None = None,
    port: int = 8765,
    interval: float = 5.0,
    stop: threading.Event | None = None,
    say: Callable[[str], None] = print,
) -> None:
    """Serve and refresh until `stop` is set or the user presses Ctrl-C.

    Args:
        paths, choices, options: see `build.assemble`. Paths may still be empty: the page then says that it waits.
        out: the report's files are written there too, `formats` of them (the page alone if None).
        port: of 127.0.0.1; 0 takes a free one.
        interval: seconds between two looks at the runs.
        say: what to do with a line for the user.

    Raises:
        ConfigError: the port is taken, or `interval` is not positive.
    """
    if not interval > 0:
        raise ConfigError(f"--interval {interval:g} is no time between two looks; name seconds, such as 5.")
    formats = tuple(formats) if formats else ("html",)
    stop = stop or threading.Event()
    live = Live()
    live.show(_waiting("The runs are being read."))
    server = make_server(live, port)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True)
    thread.start()
    say(f"The report is at http://{HOST}:{server.server_address[1]}/ and follows the runs; Ctrl-C ends it.")
    try:
        with memo.keeping():
            shown = ""
            while True:
                text = _refresh(live, paths, out, choices, options, formats, is_first=not shown)
                if text and text != shown:
                    say(text)
                shown = text or shown
                if stop.wait(interval):
                    return
    except KeyboardInterrupt:
        say(f"Ended. The report as it was last is in {out}.")
    finally:
        server.shutdown()
        server.server_close()
        thread.join(timeout=5)


def _refresh(
    live: Live,
    paths: Sequence[str | Path],
    out: Path,
    choices: Choices,
    options: sources.Options,
    formats: tuple[str, ...],
    is_first: bool,
) -> str:
    """Look at the runs once; returns a line for the terminal, empty where nothing changed."""
    from lossbench.report.writers import html

    try:
        # The first look is not taken from the cache of an earlier process: its report has no curves and answers.
        report = build(paths, out, formats, choices, options=options, cache=not is_first)
    except NoRunsError as error:
        live.show(_waiting(f"{error} This page looks again by itself."))
        return "There are no runs yet; the page waits for them."
    except LossbenchError as error:
        live.show(_waiting(f"The report could not be made: {error}"))
        return f"The report could not be made: {error}"
    if report.is_fresh:
        files = {file.relative_to(out).as_posix(): file for file in report.files}
        live.show(html.render(report, is_live=True), files)
        return _summary(report)
    return ""


def _summary(report: Report) -> str:
    states = ", ".join(f"{count} {state}" for state, count in state_counts(report.records).items())
    return f"{report.expected} runs expected: {states}."


def _waiting(text: str) -> str:
    from lossbench.report.writers import html

    return html.render_message(text)
