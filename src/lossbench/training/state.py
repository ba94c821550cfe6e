"""Nested state on disk: one safetensors file, whole or absent, in which damage is noticed.

Tensors are stored as they are; what else the state is made of (mappings, lists, numbers, words) is JSON in the file's
metadata, in which every tensor has the name under which it is stored. Nothing is pickled, so nothing is run on loading.
"""

from __future__ import annotations

import errno
import json
import os
import zlib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from lossbench.errors import LossbenchError

FORMAT = "lossbench-state/1"


class CheckpointError(LossbenchError):
    """A checkpoint could not be written, or what is there cannot be used."""


class DamagedError(CheckpointError):
    """A checkpoint is not what was written: cut off, changed, or of another kind."""


def write_state(file: Path, state: Mapping[str, Any]) -> None:
    """Write to a temporary name, sync, rename: a crash or a full disk leaves the old file.

    Raises:
        CheckpointError: the disk is full, or the folder cannot be written.
    """
    tensors: dict[str, Tensor] = {}
    text = json.dumps(_plain(state, "", tensors))
    temporary = file.with_name(f".{file.name}.tmp")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        save_file(tensors, temporary, {"format": FORMAT, "state": text, "crc32": str(_checksum(text, tensors))})
        with temporary.open("rb") as written:
            os.fsync(written.fileno())
        temporary.replace(file)
        sync_folder(file.parent)
    except (OSError, SafetensorError) as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise CheckpointError(_why_not_written(file, error, tensors)) from error


def read_state(file: Path) -> dict[str, Any]:
    """What `write_state` wrote, on the CPU. Raises `DamagedError` for anything else."""
    try:
        with safe_open(file, "pt") as opened:
            meta = opened.metadata() or {}
            tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118 - no mapping
    except (OSError, SafetensorError) as error:
        raise DamagedError(f"{file} cannot be read: {error}") from error
    if meta.get("format") != FORMAT:
        raise DamagedError(f"{file} is not of the format {FORMAT} but {meta.get('format')}.")
    if meta.get("crc32") != str(_checksum(meta.get("state", ""), tensors)):
        raise DamagedError(f"{file} is damaged: its checksum is not that of its content.")
    state = _whole(json.loads(meta["state"]), tensors)
    assert isinstance(state, dict)
    return state


def sync_folder(folder: Path) -> None:
    """Make renames within a folder last through a loss of power."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _plain(value: Any, name: str, tensors: dict[str, Tensor]) -> Any:
    """The value as JSON; its tensors go into `tensors`. A mapping is a list of pairs: its keys may be numbers."""
    match value:
        case Tensor():
            tensors[name] = value.detach().cpu().contiguous().clone() if _shared(value, tensors) else _stored(value)
            return {"tensor": name}
        case Mapping():
            prefix = f"{name}/" if name else ""
            return {"map": [[key, _plain(inner, f"{prefix}{key}", tensors)] for key, inner in value.items()]}
        case list() | tuple():
            kind = "list" if isinstance(value, list) else "tuple"
            return {kind: [_plain(inner, f"{name}/{i}", tensors) for i, inner in enumerate(value)]}
        case None | bool() | int() | float() | str():
            return value
    raise TypeError(f"{name} is a {type(value).__name__}, which a checkpoint cannot hold.")


def _stored(value: Tensor) -> Tensor:
    return value.detach().cpu().contiguous()


def _shared(value: Tensor, tensors: Mapping[str, Tensor]) -> bool:
    """Whether a tensor's memory is stored under another name already, which safetensors refuses."""
    return any(value.untyped_storage().data_ptr() == other.untyped_storage().data_ptr() for other in tensors.values())


def _whole(value: Any, tensors: Mapping[str, Tensor]) -> Any:
    if not isinstance(value, dict):
        return value
    ((kind, inner),) = value.items()
    match kind:
        case "tensor":
            return tensors[inner]
        case "map":
            return {key: _whole(part, tensors) for key, part in inner}
        case "list":
            return [_whole(part, tensors) for part in inner]
    return tuple(_whole(part, tensors) for part in inner)


def _checksum(text: str, tensors: Mapping[str, Tensor]) -> int:
    total = zlib.crc32(text.encode())
    for name in sorted(tensors):
        total = zlib.crc32(f"{name} {tensors[name].dtype} {tuple(tensors[name].shape)}".encode(), total)
        total = zlib.crc32(tensors[name].reshape(-1).view(torch.uint8).numpy().data, total)
    return total


def _why_not_written(file: Path, error: Exception, tensors: Mapping[str, Tensor]) -> str:
    needed = sum(tensor.nbytes for tensor in tensors.values()) / 1e6
    full = getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT) or "StorageFull" in f"{error!r}"
    why = "the disk is full" if full or "No space left" in str(error) else str(error)
    kept = "The one before it is still there" if file.exists() else "There is none before it"
    return (
        f"{file} could not be written: {why}. It needs {needed:.0f} MB beside what is there. {kept}; make room and run "
        "the same command again."
    )
