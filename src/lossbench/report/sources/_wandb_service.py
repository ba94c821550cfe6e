"""wandb's public API, asked sparingly: pages of 500, retries within a budget, and one broken run breaks no page.

wandb is imported here and nowhere else in the report, and only when a project is asked for.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from types import ModuleType
from typing import Any, TypeVar

from lossbench.report.sources import SourceError

PAGE = 500  # runs a request
REQUEST_SECONDS = 30  # for one request; wandb retries 429 and 5xx within it
OLDEST_FIRST, NEWEST_FIRST = "+created_at", "-created_at"
REFUSALS = {
    400: "the request is not accepted",
    401: "the API key is missing or wrong",
    403: "this key may not see the project",
    404: "there is no such project, or this key may not see it",
}
T = TypeVar("T")


class OutOfOrderError(Exception):
    """The service did not answer within the budget; it may do so later."""


class BrokenRunError(Exception):
    """A page holds a run whose configuration or summary is no JSON, so that wandb gives none of the page."""


@dataclass
class ServiceRun:
    """What the service says of a run.

    `trouble` says why configuration and summary are not known; `rows` are (step, numbers by key) of its training log,
    None where they were not asked for.
    """

    id: str
    name: str = ""
    state: str = ""
    group: str = ""
    url: str = ""
    created: str | None = None
    heartbeat: str | None = None
    tags: list[str] = field(default_factory=list)
    config: dict[str, Any] = field(default_factory=dict)
    summary: dict[str, Any] = field(default_factory=dict)
    trouble: str | None = None
    rows: list[Any] | None = None

    @property
    def version(self) -> tuple[str, str | None]:
        """Changes whenever the run does."""
        return self.state, self.heartbeat

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass
class Listing:
    """Runs by id, and how many the service says there are."""

    runs: dict[str, ServiceRun]
    total: int

    @property
    def lacking(self) -> int:
        """Runs that exist but were on no page; pages may repeat runs and omit others."""
        return max(0, self.total - len(self.runs))


@contextmanager
def quiet_wandb() -> Iterator[ModuleType]:
    """The wandb package, with its folders of runs in a temporary place and nothing said on the terminal."""
    try:
        import wandb
    except ImportError:
        raise SourceError("Reading a project of wandb needs the package: pip install wandb.") from None
    with tempfile.TemporaryDirectory(prefix="lossbench-wandb-") as folder:
        ours = {"WANDB_DIR": folder, "WANDB_SILENT": "true", "WANDB_ERROR_REPORTING": "false"}
        before = {name: os.environ.get(name) for name in ours}
        os.environ.update(ours)
        try:
            yield wandb
        finally:
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value


def host_of(wandb: ModuleType) -> str:
    """The address of the service that wandb's client is set to."""
    return str(os.environ.get("WANDB_BASE_URL") or wandb.setup().settings.base_url).rstrip("/")


class Service:
    """One project of one service. `seconds` is the budget of all requests together."""

    def __init__(self, wandb: ModuleType, entity: str, project: str, seconds: float) -> None:
        self.path = f"{entity}/{project}"
        self._wandb = wandb
        self._ends = time.monotonic() + seconds
        self.host = host_of(wandb)
        timeout = max(1, int(min(REQUEST_SECONDS, seconds)))
        self._api = self.within_budget(lambda: wandb.Api(timeout=timeout))

    def listing(self, order: str = OLDEST_FIRST, whole: bool = True, ids: Iterable[str] | None = None) -> Listing:
        """All runs, or those with `ids`; without `whole` neither their configuration nor their summary.

        Raises:
            BrokenRunError: one of the runs cannot be given; `load` gives the others.
            OutOfOrderError: the budget is used up.
            SourceError: the service refuses.
        """
        filters = None if ids is None else {"name": {"$in": list(ids)}}
        pages = self._api.runs(self.path, filters=filters, order=order, per_page=PAGE, lazy=not whole)
        total = self.within_budget(lambda: len(pages))
        found: dict[str, ServiceRun] = {}
        number = 0
        while True:
            try:  # not `next`, which would leave a run out when a request is tried again
                run = self.within_budget(lambda: pages[number])  # noqa: B023 - called at once
            except IndexError:
                return Listing(found, total)
            found.setdefault(str(run.id), _facts(run, whole))
            number += 1

    def load(self, ids: list[str]) -> dict[str, ServiceRun]:
        """The whole of some runs, by id; runs that are gone are absent, broken ones have a `trouble`.

        A page that cannot be given is asked for in halves, so that a broken run costs some twenty requests and not one
        for each of its neighbours.
        """
        found: dict[str, ServiceRun] = {}
        waiting = [ids[start : start + PAGE] for start in range(0, len(ids), PAGE)]
        while waiting:
            part = waiting.pop()
            try:
                listed = self.listing(ids=part).runs
                found.update({run_id: listed[run_id] for run_id in part if run_id in listed})
            except BrokenRunError as error:
                if len(part) == 1:
                    found[part[0]] = ServiceRun(part[0], trouble=str(error))
                else:
                    waiting += [part[: len(part) // 2], part[len(part) // 2 :]]
        return found

    def rows(self, run_id: str) -> list[dict[str, Any]]:
        """Every logged row of a run, unsampled: about four requests."""
        return self.within_budget(lambda: list(self._api.run(f"{self.path}/{run_id}").scan_history(page_size=10_000)))

    def within_budget(self, ask: Callable[[], T]) -> T:
        """What `ask` returns; asked again after trouble that passes, until the budget is used up.

        Raises:
            BrokenRunError, OutOfOrderError, SourceError: see `listing`.
        """
        wait = 1.0
        while True:
            try:
                return ask()
            except (IndexError, SourceError):
                raise
            except Exception as error:  # wandb raises its own classes, which moved between versions, and others'
                if isinstance(error, self._wandb.errors.CommError) and _status(error) is None:
                    raise BrokenRunError(_first_line(error)) from error
                if refusal := _refusal(error):
                    raise SourceError(
                        f"{self.host} does not give {self.path}: {refusal}. Check the names, and `wandb login`."
                    ) from error
                if not _passes(error):
                    raise SourceError(
                        f"{self.host} does not give {self.path}: {type(error).__name__}: {_first_line(error)}"
                    ) from error
                if time.monotonic() + wait > self._ends:
                    raise OutOfOrderError(f"{self.host} did not answer in time ({_first_line(error)})") from error
                time.sleep(wait)
                wait = min(2 * wait, 30.0)


def _facts(run: Any, whole: bool) -> ServiceRun:
    return ServiceRun(
        id=str(run.id),
        name=str(run.name or ""),
        state=str(run.state),
        group=str(run.group or ""),
        url=str(run.url),
        created=run.created_at,
        heartbeat=run.heartbeat_at,
        tags=[str(tag) for tag in run.tags or []],
        config=dict(run.config) if whole else {},
        summary=_plain(run.summary_metrics) if whole else {},
    )


def _plain(summary: Any) -> dict[str, Any]:
    return dict(summary) if summary else {}


def _refusal(error: BaseException) -> str | None:
    """Why the service will never answer this, or None if it may do so later."""
    status = _status(error)
    if status is not None:
        return REFUSALS.get(status)
    text = str(error).lower()
    if isinstance(error, ValueError) and "could not find project" in text:
        return REFUSALS[404]
    if "not logged in" in text or "api key" in text or "no api_key" in text:
        return REFUSALS[401]
    return None


def _passes(error: BaseException) -> bool:
    """True for trouble of the service or on the way to it, which may be over when the same is asked again."""
    status = _status(error)
    if status is not None:
        return status == 429 or status >= 500
    is_of_wandb = type(error).__module__.startswith("wandb.")
    return is_of_wandb or isinstance(error, OSError)


def _status(error: BaseException | None) -> int | None:
    """The HTTP status behind an error, if one is known along its causes."""
    while error is not None:
        response = getattr(error, "response", None)
        status = getattr(response, "http_status", 0) or getattr(response, "status_code", 0)
        if status:
            return int(status)
        error = error.__cause__
    return None


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]
