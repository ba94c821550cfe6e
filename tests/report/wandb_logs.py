"""Made-up logs of wandb, byte by byte: another writer of the format that lossbench reads."""

from __future__ import annotations

import json
import os
import struct
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

BLOCK = 32768
HEADER = b":W&B" + struct.pack("<HB", 0xBEE1, 0)


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def blob(field: int, value: bytes | str) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return varint(field << 3 | 2) + varint(len(data)) + data


def item(key: str, value: Any, nested: bool = False) -> bytes:
    return blob(2 if nested else 1, key) + blob(16, json.dumps(value))


def run(id: str, config: Mapping[str, Any], started: int = 1_700_000_000, group: str = "", name: str = "") -> bytes:
    body = blob(1, id) + blob(3, "lossbench")
    body += blob(4, b"".join(blob(1, item(key, value)) for key, value in config.items()))
    body += blob(6, group) + blob(8, name or id) + blob(10, "study") + blob(17, number(1, started))
    return blob(17, body)


def row(step: int, values: Mapping[str, Any]) -> bytes:
    items = b"".join(blob(1, item(key, value, nested=True)) for key, value in values.items())
    return blob(2, items + blob(2, number(1, step)))


def summary(values: Mapping[str, Any]) -> bytes:
    return blob(3, b"".join(blob(1, item(key, value)) for key, value in values.items()))


def leave(code: int) -> bytes:
    return blob(18, number(1, code) if code else b"")


def preempting() -> bytes:
    return blob(23, b"")


def encode(bodies: Iterable[bytes]) -> bytes:
    """The file that holds these records."""
    out = bytearray(HEADER)
    for place, body in enumerate(bodies, start=1):
        rest, first = number(1, place) + body, True
        while True:
            left = BLOCK - len(out) % BLOCK
            if left < 7:
                out += b"\0" * left
                continue
            part, rest = rest[: left - 7], rest[left - 7 :]
            kind = (1 if first else 4) if not rest else (2 if first else 3)
            out += struct.pack("<IHB", zlib.crc32(bytes([kind]) + part), len(part), kind) + part
            first = False
            if not rest:
                break
    return bytes(out)


def identity(loss: str = "focal", seed: int = 0, **more: Any) -> dict[str, Any]:
    """The configuration that lossbench gives wandb."""
    return {
        "name": f"{loss}-tiny-arithmetic-s{seed}", "group": f"group-{loss}", "study": "demo", "loss": loss,
        "model": "tiny", "dataset": "arithmetic", "seed": seed, "attempt": 1, "config": {"optimizer": {"lr": 0.001}},
        "created": "2026-11-30T16:00:00+00:00", "versions": {"torch": "2.13.0"}, **more,
    }  # fmt: skip


def write_log(
    study: Path, id: str, bodies: Iterable[bytes], age: float = 3600.0, now: float = 1_800_000_000.0, part: int = 0
) -> Path:
    """An offline folder with one log, last changed `age` seconds before `now`; `part` tells attempts apart."""
    folder = study / "wandb" / f"offline-run-20261130_16000{part}-{id}"
    folder.mkdir(parents=True)
    file = folder / f"run-{id}.wandb"
    file.write_bytes(encode(bodies))
    os.utime(file, (now - age, now - age))
    return file
