r"""The envelope of every message between a site and the server: what is sent, what it costs, what is refused.

A message on the wire is 24 bytes of frame and a safetensors body::

    6 bytes   b"FedHK\x00"
    2 bytes   schema version, little-endian
    16 bytes  the first half of the SHA-256 digest of the 8 bytes above and of the body
    rest      safetensors: arrays, and the metadata {"fedhk": '["<kind>","<site>",<round>,{<values>}]'}

Equal messages have equal bytes, and any flipped bit, cut or addition is refused. The digest finds damage, not forgery:
it has no key. So what a site claims is checked after it, by `expect`, by the codec and by its phase; secrecy and
origin are the transport's.

Beyond the arrays, a message costs about 80 bytes plus its kind, site name and values, and about 60 bytes plus a name
for each array: a message "statistics" of site "oslo" with 3 arrays of 10 x 50 numbers 288 bytes, with 9 arrays 680
bytes. Where many small arrays travel together, send them as one.

Nothing is ever unpickled. Decoding takes about twice the size of the payload in memory, and at most 32 MB more for the
header, however it is made: sizes that a header claims are compared with the payload before anything is allocated.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load as from_body
from safetensors.numpy import save as to_body

from fedhk.errors import MessageError

__all__ = ["DTYPES", "MAX_BYTES", "VERSION", "Message", "decode", "encode", "expect"]

VERSION = 1
MAX_BYTES = 2**28
"""Largest message that is read unless the caller says otherwise."""
DTYPES = frozenset(
    ["bool", "float16", "float32", "float64"] + [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
)
"""What arrays may hold."""

MAGIC = b"FedHK\x00"
DIGEST_BYTES = 16
BODY = len(MAGIC) + 2 + DIGEST_BYTES
MAX_HEADER_BYTES = 2**20
MAX_NAME = 200
METADATA = "fedhk"
WRITER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), sort_keys=True)


@dataclass(frozen=True, eq=False)
class Message:
    """What a site and the server say to each other in one round.

    Parameters
    ----------
    kind : str
        What the message is, such as "statistics": printable, at most 200 characters.
    site : str
        The site at the other end of the server, whoever of the two sends: printable, at most 200 characters.
    round : int
        The round it belongs to, from 0 on.
    arrays : dict of str to ndarray
        Numbers, in the precision in which they travel; see `DTYPES`.
    values : dict of str to JSON value
        Anything else that JSON can hold; finite numbers only. Tuples arrive as lists.
    """

    kind: str
    site: str
    round: int
    arrays: dict[str, NDArray[Any]] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)


def encode(message: Message) -> bytes:
    """Turn a message into the bytes that `decode` reads; equal messages give equal bytes.

    Raises
    ------
    MessageError
        If the message holds something that cannot be sent.
    """
    try:
        header = _header_text(message.kind, message.site, message.round, message.values)
        # safetensors writes memory as it lies, and np.ascontiguousarray would turn a number into a vector
        arrays = {name: np.asarray(array, order="C") for name, array in message.arrays.items()}
        _check_sendable(arrays)
        body = to_body(arrays, metadata={METADATA: header})
    except (TypeError, ValueError, RecursionError, SafetensorError) as error:
        raise MessageError(f"cannot send the message: {_short(error)}", _name_or_none(message.site)) from error
    if int.from_bytes(body[:8], "little") > MAX_HEADER_BYTES:
        reason = (
            f"cannot send the message: its header is longer than {MAX_HEADER_BYTES} bytes; send long lists as arrays"
        )
        raise MessageError(reason, message.site)
    start = MAGIC + VERSION.to_bytes(2, "little")
    return b"".join([start, _digest(start, body), body])


def decode(payload: bytes, *, site: str | None = None, max_bytes: int = MAX_BYTES) -> Message:
    """Turn bytes from anywhere into a message, or say why they are none.

    Parameters
    ----------
    payload : bytes
        What came.
    site : str, optional
        Whom the transport says it came from, for the errors. Whether the message says the same is for `expect`.
    max_bytes : int
        Longest payload that is looked at.

    Returns
    -------
    Message
        Well formed; whether it is what was asked for is for `expect` and the codec. Its arrays can be written to.

    Raises
    ------
    MessageError
        Whatever is wrong with the bytes.
    """
    if len(payload) > max_bytes:
        raise MessageError(f"message has {len(payload)} bytes, at most {max_bytes} are allowed", site)
    _check_frame(payload, site)
    body = bytes(memoryview(payload)[BODY:])
    if int.from_bytes(body[:8], "little") > MAX_HEADER_BYTES:
        raise MessageError(f"message header is longer than {MAX_HEADER_BYTES} bytes", site)
    try:
        arrays = from_body(body)
        _check_sendable(arrays)
        _check_booleans(arrays)
        kind, sender, round_number, values = _read_header(body)
    except KeyError as error:  # safetensors knows more types than NumPy has
        raise MessageError(
            f"message has an array of type {_short(error)}, allowed are {sorted(DTYPES)}", site
        ) from error
    except (SafetensorError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise MessageError(f"message is not well formed: {_short(error)}", site) from error
    return Message(kind, sender, round_number, arrays, values)


def expect(message: Message, *, kind: str | None = None, round: int | None = None, site: str | None = None) -> None:  # noqa: A002
    """Refuse a message that is not the one that was asked for; None accepts anything.

    Raises
    ------
    MessageError
        Naming what was found and what was expected. Its site is ``site``, or the message's own where that is None.
    """
    asked = {"site": site, "kind": kind, "round": round}
    for name, wanted in asked.items():
        found = getattr(message, name)
        if wanted is not None and found != wanted:
            reason = f"message has {name} {found!r}, expected {wanted!r}"
            raise MessageError(reason, message.site if site is None else site)


def _check_frame(payload: bytes, site: str | None) -> None:
    """Refuse what is no message, then other versions (which may frame the rest otherwise), then damage."""
    if payload[: len(MAGIC)] != MAGIC[: len(payload)] or len(payload) < BODY:
        raise MessageError(f"not a FedHK message, or cut short ({len(payload)} bytes)", site)
    version = int.from_bytes(payload[len(MAGIC) : len(MAGIC) + 2], "little")
    if version != VERSION:
        older = "the other side" if version < VERSION else "this side"
        reason = f"message has schema version {version}, this FedHK reads {VERSION}; upgrade FedHK on {older}"
        raise MessageError(reason, site)
    start, digest = payload[: len(MAGIC) + 2], payload[BODY - DIGEST_BYTES : BODY]
    if _digest(start, memoryview(payload)[BODY:]) != digest:
        raise MessageError("message was damaged on its way: its digest does not fit its content; send it again", site)


def _digest(start: bytes, body: bytes | memoryview) -> bytes:
    state = sha256(start)
    state.update(body)
    return state.digest()[:DIGEST_BYTES]


def _header_text(kind: str, site: str, round_number: int, values: dict[str, Any]) -> str:
    """The one text for a header, or an error that says what cannot be sent."""
    for name, value in (("kind", kind), ("site", site)):
        if _name_or_none(value) is None:
            raise ValueError(f"{name} must be 1 to {MAX_NAME} printable characters, got {str(value)[:MAX_NAME]!r}")
    if type(round_number) is not int or not 0 <= round_number < 2**63:
        raise ValueError(f"round must be a whole number from 0 on, got {round_number!r}")
    if not isinstance(values, dict) or not all(isinstance(name, str) for name in values):
        raise ValueError("values must be a dict with text as keys")
    header = [kind, site, round_number, values]
    return WRITER.encode(header)


def _read_header(body: bytes) -> tuple[str, str, int, dict[str, Any]]:
    """The header of a body that safetensors has accepted: only the text that `encode` would have written."""
    length = int.from_bytes(body[:8], "little")
    metadata = json.loads(body[8 : 8 + length]).get("__metadata__")
    if not metadata or METADATA not in metadata:
        raise ValueError("it has no FedHK header")
    text = metadata[METADATA]
    kind, site, round_number, values = json.loads(text)
    if len(metadata) != 1 or _header_text(kind, site, round_number, values) != text:
        raise ValueError("its header is not in the one form that FedHK writes")
    return kind, site, round_number, values


def _check_sendable(arrays: Mapping[str, NDArray[Any]]) -> None:
    for name, array in arrays.items():
        if not isinstance(name, str) or name in ("", "__metadata__"):
            raise ValueError(f"{name!r} is no name for an array")
        if array.dtype.kind not in "bfiu" or array.dtype.itemsize > 8:
            raise ValueError(f"array {name[:MAX_NAME]!r} has dtype {array.dtype}, allowed are {sorted(DTYPES)}")


def _check_booleans(arrays: Mapping[str, NDArray[Any]]) -> None:
    """Refuse bytes other than 0 and 1: NumPy counts on them when it selects rows, and would write past the end."""
    for name, array in arrays.items():
        if array.dtype.kind == "b" and array.view(np.uint8).max(initial=0) > 1:
            raise ValueError(f"array {name[:MAX_NAME]!r} has values that are neither true nor false")


def _name_or_none(value: Any) -> str | None:
    return value if isinstance(value, str) and 0 < len(value) <= MAX_NAME and value.isprintable() else None


def _short(error: BaseException) -> str:
    return str(error)[:300]
