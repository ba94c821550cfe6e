"""HTTP around the store: GraphQL, file streams and uploads, a list of requests, and faults."""

from __future__ import annotations

import base64
import gzip
import json
import sys
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

from tests.wandb_server import graphql
from tests.wandb_server.store import Store, now

KEY = "0" * 40


@dataclass
class Fault:
    """An answer in place of the true one, `times` times, for requests whose label contains `match`."""

    match: str
    status: int = 500
    times: int = 1
    headers: dict[str, str] = field(default_factory=dict)
    delay: float = 0.0
    drop: bool = False  # close the connection without an answer


@dataclass(frozen=True)
class Request:
    """`label` is the GraphQL operation, or the path."""

    label: str
    variables: dict[str, Any]
    body: Any


class WandbServer:
    """A server in a thread of its own, until the `with` block ends."""

    def __init__(self, entity: str = "team") -> None:
        self.store = Store(entity)
        self.requests: list[Request] = []
        self.unknown: list[str] = []
        self.faults: list[Fault] = []
        self.lock = threading.RLock()
        handler = type("Handler", (_Handler,), {"owner": self})
        self._http = _QuietServer(("127.0.0.1", 0), handler)
        self._http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}"

    def __enter__(self) -> WandbServer:
        threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._http.shutdown()
        self._http.server_close()

    def reset(self) -> None:
        """As if it had just begun."""
        with self.lock:
            self.store = Store(self.store.entity)
            for seen in (self.requests, self.unknown, self.faults):
                seen.clear()

    def environment(self) -> dict[str, str]:
        """What makes wandb's client talk to this server."""
        return {
            "WANDB_BASE_URL": self.url,
            "WANDB_API_KEY": KEY,
            "WANDB_ENTITY": self.store.entity,
            "WANDB_MODE": "online",
            "WANDB_ERROR_REPORTING": "false",
            "WANDB_SILENT": "true",
        }

    def fail(self, match: str, status: int = 500, times: int = 1, **more: Any) -> None:
        with self.lock:
            self.faults.append(Fault(match, status, times, **more))

    def count(self, label: str) -> int:
        """How many requests had this label."""
        return sum(request.label == label for request in self.requests)

    def file_stream(self, key: tuple[str, str, str], body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        run = self.store.runs.get(key)
        if run is None:
            return 404, {"error": "no such run"}
        streams = {"wandb-history.jsonl": run.history, "wandb-events.jsonl": run.events, "output.log": run.output}
        for name, part in (body.get("files") or {}).items():
            if name == "wandb-summary.json":
                run.summary = part["content"][-1]
            elif name in streams:
                lines = streams[name]
                lines += ["{}"] * (part["offset"] - len(lines))
                lines[part["offset"] : part["offset"] + len(part["content"])] = part["content"]
        run.preempting |= bool(body.get("preempting"))
        if body.get("complete"):
            run.exit_code = body.get("exitcode", 0)
            run.state = "finished" if run.exit_code == 0 else "preempted" if run.preempting else "failed"
        elif run.state != "running":
            run.state = "running"
        run.heartbeat = now()
        return 200, {"exitcode": None, "limits": {}}


class _QuietServer(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that a test kills leave broken connections; anything else is worth a traceback."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    owner: WandbServer

    def log_message(self, *arguments: object) -> None:
        pass

    def _answer(self) -> None:
        server, path, body = self.owner, urlsplit(self.path).path, self._body()
        is_graphql = path == "/graphql"
        parsed = json.loads(body) if is_graphql or path.endswith("file_stream") else None
        label = graphql.operation_of(parsed["query"]) if is_graphql else path
        with server.lock:
            variables = parsed.get("variables") or {} if is_graphql else {}
            server.requests.append(Request(label, variables, None if is_graphql else parsed))
            fault = next((f for f in server.faults if f.times > 0 and f.match in label), None)
            if fault:
                fault.times -= 1
        if fault:
            time.sleep(fault.delay)
            if fault.drop:
                self.close_connection = True
                self.connection.close()
            else:
                self._reply(fault.status, {"error": f"fault {fault.status}"}, fault.headers)
        elif is_graphql:
            self._graphql(parsed["query"], variables)
        else:
            self._file(path, parsed, body)

    def _graphql(self, query: str, variables: dict[str, Any]) -> None:
        expected = "Basic " + base64.b64encode(f"api:{KEY}".encode()).decode()
        if self.headers.get("Authorization") != expected:
            self._reply(401, {"errors": [{"message": "user is not logged in"}]})
            return
        try:
            with self.owner.lock:
                answer: dict[str, Any] = {"data": graphql.answer(self.owner.store, self.owner.url, query, variables)}
        except graphql.UnknownOperationError as error:
            self.owner.unknown.append(str(error))
            answer = {"errors": [{"message": f"the operation {error} is not known"}]}
        self._reply(200, answer)

    def _file(self, path: str, parsed: Any, body: bytes) -> None:
        parts = [unquote(part) for part in path.strip("/").split("/")]
        with self.owner.lock:
            if parts[0] == "files" and parts[-1] == "file_stream":
                self._reply(*self.owner.file_stream((parts[1], parts[2], parts[3]), parsed))
                return
            run = self.owner.store.runs.get((parts[1], parts[2], parts[3])) if len(parts) >= 5 else None
            if parts[0] == "storage" and run is not None and self.command == "PUT":
                run.files["/".join(parts[4:])] = body
                self._reply(200, {})
                return
        self._reply(404, {"error": "no such path"})

    def _body(self) -> bytes:
        if "chunked" in (self.headers.get("Transfer-Encoding") or ""):
            body = b""
            while size := int(self.rfile.readline().split(b";")[0], 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        else:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        return gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body

    def _reply(self, status: int, answer: dict[str, Any], headers: dict[str, str] | None = None) -> None:
        data = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = do_PUT = _answer  # noqa: N815 - the names that http.server calls
