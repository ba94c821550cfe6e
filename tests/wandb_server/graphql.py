"""The GraphQL operations that wandb 0.31 and wandb-workspaces 0.4 use, by their names."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from typing import Any

from tests.wandb_server.store import Store, StoredRun, StoredView, now

OPERATION = re.compile(r"\b(?:query|mutation)\s+(\w+)")
Variables = dict[str, Any]


class UnknownOperationError(LookupError):
    """The client asked for something that no test needed yet."""


def operation_of(query: str) -> str:
    found = OPERATION.search(query)
    return found[1] if found else "?"


def answer(store: Store, url: str, query: str, variables: Variables) -> dict[str, Any]:
    name = operation_of(query)
    if name not in OPERATIONS:
        raise UnknownOperationError(name)
    return OPERATIONS[name](store, variables, query, url)


def _run(store: Store, v: Variables) -> StoredRun | None:
    entity = v.get("entity") or v.get("entityName") or store.entity
    name = v.get("name") or v.get("run") or v.get("runName") or v.get("runId")
    return None if name in store.deleted else store.runs.get((entity, v.get("project") or v.get("projectName"), name))


def viewer(store: Store, v: Variables, query: str, url: str) -> dict[str, Any]:
    teams = {"edges": [{"node": {"name": store.entity}}]}
    me = {"id": "me", "entity": store.entity, "username": "tester", "name": "tester", "email": "tester@localhost"}
    return {"viewer": {**me, "flags": "{}", "teams": teams, "admin": False, "organizations": []}}


def upsert_bucket(store: Store, v: Variables, query: str, url: str) -> dict[str, Any]:
    key = (v.get("entity") or store.entity, v.get("project") or "uncategorized", v["name"])
    is_new = key not in store.runs
    run = store.runs.setdefault(key, StoredRun(*key, number=len(store.runs)))
    for argument, attribute in (
        ("displayName", "display_name"), ("groupName", "group"), ("jobType", "job_type"), ("state", "state"),
        ("tags", "tags"),
    ):  # fmt: skip
        if v.get(argument) is not None:
            setattr(run, attribute, v[argument])
    if v.get("config"):
        run.config.update(json.loads(v["config"]))
    if v.get("summaryMetrics"):
        run.summary = v["summaryMetrics"]
    run.heartbeat = now()
    project = {"id": "p", "name": run.project, "entity": {"id": "e", "name": run.entity}}
    return {"upsertBucket": {"bucket": {**run.node(), "project": project}, "inserted": is_new}}


def run_resume_status(store: Store, v: Variables, query: str, url: str) -> dict[str, Any]:
    run = _run(store, v)
    bucket = None
    if run is not None:
        bucket = {
            **run.node(),
            "logLineCount": len(run.output),
            "eventsLineCount": len(run.events),
            "historyTail": json.dumps(run.history[-1:]),
            "eventsTail": json.dumps(run.events[-1:]),
            "wandbConfig": json.dumps({"t": 1}),
        }
    entity = {"id": "e", "name": v.get("entity") or store.entity}
    return {"model": {"id": "p", "name": v.get("project"), "entity": entity, "bucket": bucket}}


def create_run_files(store: Store, v: Variables, query: str, url: str) -> dict[str, Any]:
    base = f"{url}/storage/{v['entity']}/{v['project']}/{v['run']}"
    files = [{"name": name, "uploadUrl": f"{base}/{name}"} for name in v["files"]]
    return {"createRunFiles": {"runID": "x", "uploadHeaders": [], "files": files}}


def runs(store: Store, v: Variables, query: str, url: str) -> dict[str, Any]:
    listed = store.listed(v["entity"], v["project"], v.get("order") or "+created_at")
    if not listed and not any(run.project == v["project"] for run in store.runs.values()):
        return {"project": None}
    wanted = json.loads(v.get("filters") or "{}").get("name", {}).get("$in")  # the one filter that lossbench uses
    if wanted is not None:
        listed = [run for run in listed if run.name in wanted and run.name not in store.deleted]
    start = int(base64.b64decode(v["cursor"])) if v.get("cursor") else 0
    size = v.get("perPage") or 50
    edges = []
    for place, run in enumerate(listed[start : start + size], start=start + 1):
        node = run.node()
        if "summaryMetrics" not in query:
            node = {k: x for k, x in node.items() if k not in {"config", "summaryMetrics", "systemMetrics"}}
        edges.append({"node": node, "cursor": base64.b64encode(str(place).encode()).decode()})
    page = {"endCursor": edges[-1]["cursor"] if edges else None, "hasNextPage": start + size < len(listed)}
    everything = sum((run.entity, run.project) == (v["entity"], v["project"]) for run in store.runs.values())
    count = everything if wanted is None else len(listed)
    return {
        "project": {
            "internalId": "1", "runCount": count, "readOnly": False, "runs": {"edges": edges, "pageInfo": page},
        }
    }  # fmt: skip


def run(store: Store, v: Variables, query: str, url: str) -> dict[str, Any]:
    found = _run(store, v)
    return {"project": {"run": found.node() if found else None}}


def history_page(store: Store, v: Variables, query: str, url: str) -> dict[str, Any]:
    found = _run(store, v)
    lines = found.history if found else []
    chosen = [line for line in lines if v["minStep"] <= json.loads(line).get("_step", 0) < v["maxStep"]]
    return {"project": {"run": {"history": chosen[: v["pageSize"]]}}}


def parquet_history(store: Store, v: Variables, query: str, url: str) -> dict[str, Any]:
    found = _run(store, v)
    rows = [{k: _strict(x) for k, x in row.items()} for row in (found.rows() if found else [])]
    return {"project": {"run": {"parquetHistory": {"parquetUrls": [], "liveData": rows}}}}


def _strict(value: Any) -> Any:
    """Words for NaN and infinities, as the service returns them."""
    if isinstance(value, float) and value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    return "NaN" if isinstance(value, float) and value != value else value


def upsert_view(store: Store, v: Variables, query: str, url: str) -> dict[str, Any]:
    known = store.views.get(v.get("id") or "")
    if known is None:
        identity = base64.b64encode(f"View:{len(store.views)}".encode()).decode()  # as its clients decode it
        known = StoredView(v["entityName"], v["projectName"], identity, v["name"], v["type"], "", "")
        store.views[identity] = known
    is_new = not v.get("id")
    known.display_name, known.spec = v["displayName"], v["spec"]
    return {"upsertView": {"view": known.node(), "inserted": is_new}}


def all_views(store: Store, v: Variables, query: str, url: str) -> dict[str, Any]:
    project = v.get("projectName") or v.get("project") or v.get("name")
    wanted = [
        view
        for view in store.views.values()
        if view.project == project
        and view.type == v.get("viewType", "runs")
        and (not v.get("viewName") or v["viewName"] == view.name)
    ]
    edges = [{"node": view.node(), "cursor": view.id} for view in wanted]
    page = {"endCursor": None, "hasNextPage": False}
    return {"project": {"allViews": {"edges": edges, "pageInfo": page}}}


def one_view(store: Store, v: Variables, query: str, url: str) -> dict[str, Any]:
    view = store.views.get(v.get("reportId") or v.get("viewId") or "")
    return {"view": view.node() if view else None}


def projects(store: Store, v: Variables, query: str, url: str) -> dict[str, Any]:
    names = sorted({run.project for run in store.runs.values()})
    nodes = [
        {"id": name, "name": name, "entityName": store.entity, "createdAt": now(), "isBenchmark": False, "user": None}
        for name in names
    ]
    page = {"endCursor": None, "hasNextPage": False}
    return {"models": {"edges": [{"node": node, "cursor": node["id"]} for node in nodes], "pageInfo": page}}


def project_internal_id(store: Store, v: Variables, query: str, url: str) -> dict[str, Any]:
    return {"project": {"id": "p", "internalId": "1"}}


OPERATIONS: dict[str, Callable[[Store, Variables, str, str], dict[str, Any]]] = {
    "Viewer": viewer,
    "ServerFeaturesQuery": lambda store, v, query, url: {"serverInfo": {"features": []}},
    "OrganizationCoreWeaveOrganizationID": lambda store, v, query, url: {
        "entity": {"organization": {"coreWeaveOrganizationId": None}}
    },
    "UpsertBucket": upsert_bucket,
    "RunResumeStatus": run_resume_status,
    "RunStoppedStatus": lambda store, v, query, url: {"project": {"run": {"stopped": False}}},
    "CreateRunFiles": create_run_files,
    "MarkRunFilesUploaded": lambda store, v, query, url: {"markRunFilesUploaded": {"success": True}},
    "Runs": runs,
    "Run": run,
    "RunState": run,
    "RunHistoryKeys": run,
    "QueryRunInfo": run,
    "HistoryPage": history_page,
    "RunParquetHistory": parquet_history,
    "UpsertView2": upsert_view,
    "upsertView": upsert_view,
    "View": all_views,
    "ProjectViews": all_views,
    "SpecificReport": one_view,
    "ProjectInternalId": project_internal_id,
    "GetProjects": projects,
}
