"""What the server keeps: runs and saved views, in memory."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

START = datetime(2026, 11, 1, tzinfo=UTC)


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass
class StoredRun:
    """A run as the service keeps it. `summary` is JSON text, so that a test can plant text that is no JSON."""

    entity: str
    project: str
    name: str  # what wandb's clients call the id
    number: int = 0
    display_name: str = ""
    state: str = "running"
    group: str | None = None
    job_type: str | None = None
    tags: list[str] = field(default_factory=list)
    config: dict[str, Any] = field(default_factory=dict)  # {key: {"value": ...}}
    summary: str = "{}"
    history: list[str] = field(default_factory=list)  # JSON lines
    output: list[str] = field(default_factory=list)
    events: list[str] = field(default_factory=list)
    files: dict[str, bytes] = field(default_factory=dict)
    created: str = field(default_factory=now)
    heartbeat: str = field(default_factory=now)
    exit_code: int | None = None
    preempting: bool = False

    @property
    def key(self) -> tuple[str, str, str]:
        return self.entity, self.project, self.name

    @property
    def storage_id(self) -> str:
        return "-".join(("id", *self.key))

    def rows(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.history]

    def plain_config(self) -> dict[str, Any]:
        return {key: item["value"] for key, item in self.config.items()}

    def node(self) -> dict[str, Any]:
        """The run as GraphQL returns it."""
        rows = self.rows()
        keys = sorted({key for row in rows for key in row})
        return {
            "id": self.storage_id,
            "projectId": "1",
            "tags": self.tags,
            "name": self.name,
            "displayName": self.display_name or self.name,
            "sweepName": None,
            "state": self.state,
            "config": json.dumps(self.config),
            "group": self.group,
            "jobType": self.job_type,
            "commit": None,
            "readOnly": False,
            "createdAt": self.created,
            "heartbeatAt": self.heartbeat,
            "description": "",
            "notes": None,
            "systemMetrics": "{}",
            "summaryMetrics": self.summary,
            "historyLineCount": len(self.history),
            "user": {"name": "tester", "username": "tester"},
            "historyKeys": {
                "lastStep": max((row.get("_step", -1) for row in rows), default=-1),
                "sets": [],
                "keys": {key: {"typeCounts": [{"type": "number", "count": 1}]} for key in keys},
            },
            "stopped": False,
        }


@dataclass
class StoredView:
    """A saved workspace or report."""

    entity: str
    project: str
    id: str
    name: str
    type: str
    display_name: str
    spec: str

    def node(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "type": self.type,
            "name": self.name,
            "displayName": self.display_name,
            "description": "",
            "project": {"id": "1", "name": self.project, "entityName": self.entity},
            "createdAt": now(),
            "updatedAt": now(),
            "spec": self.spec,
            "user": {"id": "u", "username": "tester", "name": "tester", "photoUrl": None},
            "viewCount": 0,
        }


@dataclass
class Store:
    """All runs and views. `listings` change the order in which the runs of a project are paged, by `order`."""

    entity: str
    runs: dict[tuple[str, str, str], StoredRun] = field(default_factory=dict)
    views: dict[str, StoredView] = field(default_factory=dict)
    deleted: set[str] = field(default_factory=set)  # still listed, but gone when asked for one by one
    listings: dict[str, Callable[[list[StoredRun]], list[StoredRun]]] = field(default_factory=dict)

    def add_run(
        self,
        project: str,
        name: str,
        config: Mapping[str, Any] | None = None,
        summary: Mapping[str, Any] | str | None = None,
        history: Sequence[Mapping[str, Any]] = (),
        state: str = "finished",
        **more: Any,
    ) -> StoredRun:
        """A run as if it had been logged. `summary` as text is kept as it is."""
        number = len(self.runs)
        created = (START + timedelta(minutes=number)).strftime("%Y-%m-%dT%H:%M:%SZ")
        run = StoredRun(
            more.pop("entity", self.entity),
            project,
            name,
            number,
            state=state,
            created=created,
            heartbeat=created,
            **more,
        )
        run.config = {key: {"value": value} for key, value in (config or {}).items()}
        run.summary = summary if isinstance(summary, str) else json.dumps(summary or {})
        run.history = [json.dumps({"_step": step, **row}) for step, row in enumerate(history)]
        self.runs[run.key] = run
        return run

    def listed(self, entity: str, project: str, order: str) -> list[StoredRun]:
        runs = [run for run in self.runs.values() if (run.entity, run.project) == (entity, project)]
        runs.sort(key=lambda run: (run.created, run.number), reverse=order.startswith("-"))
        return self.listings.get(order, lambda runs: runs)(runs)
