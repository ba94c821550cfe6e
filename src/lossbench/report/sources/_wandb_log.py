"""One log of wandb as plain data: who the run is, its configuration, its summary, how it ended, and its rows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lossbench.report.numbers import as_number, parse_json
from lossbench.report.sources._wandb_format import Damage, NoWandbLogError, fields, records, signed

AXIS = "trainer/global_step"
MANY = 3  # kinds of damage that are told one by one

# Field numbers of wandb_internal.proto.
RECORD = {2: "history", 3: "summary", 5: "config", 17: "run", 18: "exit", 23: "preempting"}
RUN_TEXT = {
    1: "id", 2: "entity", 3: "project", 6: "group", 7: "job_type", 8: "name", 10: "tags", 12: "sweep", 13: "host",
}  # fmt: skip
RUN_CONFIG, RUN_STARTED = 4, 17
UPDATE, REMOVE = 1, 2  # of ConfigRecord and SummaryRecord; the items of HistoryRecord are number 1 as well
KEY, NESTED_KEY, VALUE = 1, 2, 16  # of their items
HISTORY_STEP = 2

KeyPath = tuple[str, ...]


@dataclass
class WandbLog:
    """What a log says. `exit_code` is None while there is no exit record; `started` is in seconds since 1970."""

    path: Path
    size: int = 0
    changed: float = 0.0
    id: str = ""
    entity: str = ""
    project: str = ""
    group: str = ""
    job_type: str = ""
    name: str = ""
    tags: list[str] = field(default_factory=list)
    started: float | None = None
    config: dict[str, Any] = field(default_factory=dict)
    summary: dict[str, Any] = field(default_factory=dict)
    exit_code: int | None = None
    preempting: bool = False
    records: int = 0
    damage: list[Damage] = field(default_factory=list)
    trouble: str | None = None  # why nothing at all could be read

    @property
    def is_empty(self) -> bool:
        """True for a log without a run in it, such as one that was killed before wandb's first flush."""
        return not self.id


def read_log(path: Path) -> WandbLog:
    """Everything but the rows; never raises because of what the file holds."""
    log = WandbLog(path)
    data = _bytes(log)
    summary: dict[KeyPath, bytes] = {}
    for payload in _payloads(data, log):
        try:
            for number, value in fields(payload):
                kind = RECORD.get(number)
                if kind == "history":  # most of a log; `read_rows` looks at them
                    break
                if isinstance(value, bytes) and kind:
                    _take(kind, value, log, summary)
                    break
        except ValueError as error:
            log.damage.append(Damage(-1, f"a record that is no message ({error})"))
    for path_, raw in summary.items():
        _put(log.summary, path_, _json(raw))
    return log


def read_rows(log: WandbLog, keys: Iterable[str] | None) -> list[tuple[int, dict[str, float]]]:
    """(step, values) of every logged row that has one of `keys` (any number, if None), in the order of the log.

    The step is `trainer/global_step` where the row has it, else wandb's own counter of log calls.
    """
    again = WandbLog(log.path)
    wanted = None if keys is None else {key.encode(): key for key in (*keys, AXIS)}
    rows = []
    for payload in _payloads(_bytes(again), again):
        try:
            rows += [
                row
                for number, value in fields(payload)
                if number == 2 and isinstance(value, bytes) and (row := _row(value, wanted))
            ]
        except ValueError:
            continue  # named by `read_log`
    return rows


def sentences(log: WandbLog, still_written: bool) -> list[str]:
    """What is wrong with a log, for people; the cut end of a log that is still written is nothing wrong."""
    if log.trouble:
        return [f"{log.path.name} {log.trouble}."]
    damage = [part for part in log.damage if not (part.at_end and still_written)]
    told = [
        f"{log.path.name}: {part.what}" + (f" at byte {part.offset} of {log.size}" if part.offset >= 0 else "")
        for part in damage[:MANY]
    ]
    if len(damage) > MANY:
        told.append(f"{log.path.name}: and {len(damage) - MANY} more such places")
    return [f"{sentence}; the records around it are used." for sentence in told]


def _bytes(log: WandbLog) -> bytes:
    try:
        data = log.path.read_bytes()
        log.size, log.changed = len(data), log.path.stat().st_mtime
    except OSError as error:
        log.trouble = f"cannot be read: {error.strerror or error}"
        return b""
    return data


def _payloads(data: bytes, log: WandbLog) -> Iterable[bytes]:
    if log.trouble:
        return
    try:
        for payload in records(data, log.damage):
            log.records += 1
            yield payload
    except NoWandbLogError as error:
        log.trouble = f"is no log of wandb: {error}"


def _take(kind: str, message: bytes, log: WandbLog, summary: dict[KeyPath, bytes]) -> None:
    match kind:
        case "run":
            _take_run(message, log)
        case "config":
            _take_config(message, log.config)
        case "summary":
            for number, item in fields(message):
                if isinstance(item, bytes):
                    path, raw = _item(item)
                    if number == UPDATE and path:
                        summary[path] = raw
                    elif number == REMOVE:
                        summary.pop(path, None)
        case "exit":
            log.exit_code = next((signed(v) for n, v in fields(message) if n == 1 and isinstance(v, int)), 0)
        case "preempting":
            log.preempting = True


def _take_run(message: bytes, log: WandbLog) -> None:
    for number, value in fields(message):
        if not isinstance(value, bytes):
            continue
        name = RUN_TEXT.get(number)
        if name == "tags":
            log.tags.append(_text(value))
        elif name in {"id", "entity", "project", "group", "job_type", "name"}:
            setattr(log, name, _text(value))
        elif number == RUN_CONFIG:
            _take_config(value, log.config)
        elif number == RUN_STARTED:
            moment = {n: v for n, v in fields(value) if isinstance(v, int)}
            log.started = signed(moment.get(1, 0)) + moment.get(2, 0) / 1e9


def _take_config(message: bytes, config: dict[str, Any]) -> None:
    for number, item in fields(message):
        if isinstance(item, bytes):
            path, raw = _item(item)
            if number == UPDATE and path:
                _put(config, path, _json(raw))
            elif number == REMOVE and path:
                config.pop(path[0], None)


def _item(message: bytes) -> tuple[KeyPath, bytes]:
    """The key of an item, as the parts of its path, and its value as JSON text."""
    path: list[str] = []
    raw = b""
    for number, value in fields(message):
        if isinstance(value, bytes):
            if number == VALUE:
                raw = value
            elif number == NESTED_KEY or (number == KEY and not path):
                path.append(_text(value))
    return tuple(path), raw


def _row(message: bytes, wanted: dict[bytes, str] | None) -> tuple[int, dict[str, float]] | None:
    step: float | None = None
    values: dict[str, float] = {}
    for number, item in fields(message):
        if not isinstance(item, bytes):
            continue
        if number == HISTORY_STEP:
            step = float(next((signed(v) for n, v in fields(item) if n == 1 and isinstance(v, int)), 0))
            continue
        parts = [(n, v) for n, v in fields(item) if isinstance(v, bytes)]
        names = [v for n, v in parts if n in (KEY, NESTED_KEY) and v]
        key = b".".join(names)
        name = wanted.get(key) if wanted is not None else None if key.startswith(b"_") else _text(key)
        if name is not None:
            value = as_number(_json(next((v for n, v in parts if n == VALUE), b"")))
            if value is not None:
                values[name] = value
    axis = values.pop(AXIS, None)
    step = axis if axis is not None and axis.is_integer() else step
    return (int(step), values) if values and step is not None else None


def _put(tree: dict[str, Any], path: KeyPath, value: Any) -> None:
    for part in path[:-1]:
        inner = tree.get(part)
        if not isinstance(inner, dict):
            inner = tree[part] = {}
        tree = inner
    tree[path[-1]] = value


def _json(raw: bytes) -> Any:
    """The value of an item; None where it is no JSON (its record was checked by its sum, so wandb wrote it so)."""
    try:
        return parse_json(raw)
    except ValueError:
        return None


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")
