"""The transaction log of wandb (run-ID.wandb), as bytes: blocks, chunks, and the protobuf messages inside.

Written from the format's description; wandb itself is not needed to read it, and was tested with 0.26 to 0.31.

File:    `:W&B`, 0xBEE1 (u16), version 0 (u8); then blocks of 32 KiB, the first of which begins with that header.
Chunk:   CRC-32 over type and payload (u32), length of the payload (u16), type (u8), payload; all little-endian.
         Type 1 is a whole record; 2, 3 and 4 are the first, middle and last part of one. A block's last bytes, if
         fewer than a chunk's header, are padding.
Record:  one message `Record` of wandb_internal.proto. Its fields are written in the order of their numbers.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

BLOCK = 32768
HEADER = b":W&B" + struct.pack("<HB", 0xBEE1, 0)
CHUNK = struct.Struct("<IHB")
UNKNOWN_HEADER = "its header is another; the logs of wandb 0.26 to 0.31 are known, and tested"
FULL, FIRST, MIDDLE, LAST = 1, 2, 3, 4
TYPE_CRC = {kind: zlib.crc32(bytes([kind])) for kind in (FULL, FIRST, MIDDLE, LAST)}


@dataclass(frozen=True)
class Damage:
    """What is wrong from byte `offset` on. `at_end`: the file simply stops there, as one that still grows does."""

    offset: int
    what: str
    at_end: bool = False


class NoWandbLogError(ValueError):
    """The file does not begin as a log of wandb does."""


def records(data: bytes, damage: list[Damage]) -> Iterator[bytes]:
    """The payload of every whole record. After damage reading goes on at the next block; what was lost is listed.

    Raises:
        NoWandbLogError: the header is another one, or is cut off.
    """
    if not data.startswith(HEADER):
        raise NoWandbLogError("it is cut off within its header" if HEADER.startswith(data) else UNKNOWN_HEADER)
    size, position = len(data), len(HEADER)
    begun = 0  # where the record that is being put together begins
    parts: list[bytes] = []
    while position < size:
        left = BLOCK - position % BLOCK
        if left < CHUNK.size:
            position += left
            continue
        if position + CHUNK.size > size:
            damage.append(Damage(position, "the last record is cut off", at_end=True))
            return
        checksum, length, kind = CHUNK.unpack_from(data, position)
        end = position + CHUNK.size + length
        is_sound = kind in TYPE_CRC and CHUNK.size + length <= left
        if is_sound and end > size:
            damage.append(Damage(begun if parts else position, "the last record is cut off", at_end=True))
            return
        payload = data[position + CHUNK.size : end]
        if not is_sound or zlib.crc32(payload, TYPE_CRC[kind]) != checksum:
            what = "zeros" if not any(data[position : position + left]) else "a damaged record"
            damage.append(Damage(position, what))
            parts = []
            position += left
            continue
        if kind in (FULL, FIRST) and parts:
            damage.append(Damage(begun, "a record without its end"))
        if kind == FULL:
            parts = []
            yield payload
        elif kind == FIRST:
            begun, parts = position, [payload]
        elif not parts:
            damage.append(Damage(position, "a record without its beginning"))
        else:
            parts.append(payload)
            if kind == LAST:
                yield b"".join(parts)
                parts = []
        position = end
    if parts:
        damage.append(Damage(begun, "the last record is cut off", at_end=True))


def fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """(number, value) of every field of a protobuf message: whole numbers, or the bytes of anything longer.

    Raises:
        ValueError: the bytes are no protobuf message.
    """
    position, size = 0, len(message)
    while position < size:
        tag = message[position]
        position += 1
        if tag >= 0x80:
            tag, position = _varint(message, position - 1)
        kind = tag & 7
        if kind == 2:
            if position >= size:
                raise ValueError("a field is cut off")
            length = message[position]
            position += 1
            if length >= 0x80:
                length, position = _varint(message, position - 1)
            end = position + length
            if end > size:
                raise ValueError("a field is cut off")
            yield tag >> 3, message[position:end]
            position = end
        elif kind == 0:
            value, position = _varint(message, position)
            yield tag >> 3, value
        elif kind in (1, 5):
            end = position + (8 if kind == 1 else 4)
            if end > size:
                raise ValueError("a field is cut off")
            yield tag >> 3, int.from_bytes(message[position:end], "little")
            position = end
        else:
            raise ValueError(f"wire type {kind} is unknown")


def _varint(message: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if position >= len(message) or shift > 63:
            raise ValueError("a number is cut off")
        byte = message[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7


def signed(value: int) -> int:
    """A protobuf int32 or int64, which is written as 64 bits in two's complement."""
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >> 63 else value
