"""Files of a run: a message like those on the wire, with the same digest, so that damage is seen before it is used.

Checkpoints of the server and state files of sites are such files. What is in them is a dataclass, written by the codec
with the names of its fields.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from fedhk._files import read_regular, write_atomically
from fedhk.federation.board import Board, Entry, Passing
from fedhk.federation.codec import pack
from fedhk.federation.messages import Message, decode, encode, expect

T = TypeVar("T")

MAX_FILE_BYTES = 2**32


@dataclass(frozen=True, eq=False)
class Entries:
    """Entries of a board, in the order they were published."""

    entries: tuple[Entry, ...]


def pack_bytes(value: object, kind: str, owner: str) -> bytes:
    """Write a dataclass as bytes, with its kind, such as "checkpoint", and its owner, which `unpack_bytes` checks."""
    values, arrays = pack(value, type(value), named=True)
    return encode(Message(kind, owner, 0, arrays, values))


def unpack_bytes(content: bytes, kind: str, owner: str, wanted: type[T]) -> T:
    """Read a dataclass that `pack_bytes` wrote; MessageError where the bytes are damaged, or are something else."""
    message = decode(content, max_bytes=MAX_FILE_BYTES)
    expect(message, kind=kind, site=owner)
    return message.read(wanted)


def write_file(path: Path, value: object, kind: str, owner: str) -> None:
    """Write a dataclass to a file that only its owner can read; a reader sees the old content or the new."""
    write_atomically(path, pack_bytes(value, kind, owner))


def read_file(path: Path, kind: str, owner: str, wanted: type[T]) -> T:
    """Read a dataclass from a file that `write_file` wrote."""
    return unpack_bytes(read_regular(path), kind, owner, wanted)


def pack_entries(entries: Iterable[Entry], owner: str) -> bytes:
    """Write entries of a board as bytes, so that a file can be read without knowing all types of entries.

    What ends with the process is left out.
    """
    lasting = tuple(entry for entry in entries if not isinstance(entry, Passing))
    return pack_bytes(Entries(lasting), "board", owner)


def unpack_board(content: bytes, owner: str) -> Board:
    """Read the board with the entries that `pack_entries` wrote."""
    return Board().put(*unpack_bytes(content, "board", owner, Entries).entries)
