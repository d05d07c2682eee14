r"""The format of messages between a site and the server.

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
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load as from_body
from safetensors.numpy import save as to_body

from fedhk._text import LONGEST_NAME, is_name
from fedhk.errors import MessageError
from fedhk.federation.codec import unpack

T = TypeVar("T")

VERSION = 1
MAX_BYTES = 2**28
"""Default limit on the size of a message."""
DTYPES = frozenset(
    ["bool", "float16", "float32", "float64"] + [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
)
"""Types of numbers that arrays may hold."""

MAGIC = b"FedHK\x00"
DIGEST_BYTES = 16
BODY = len(MAGIC) + 2 + DIGEST_BYTES
MAX_HEADER_BYTES = 2**20
METADATA = "fedhk"
WRITER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), sort_keys=True)


@dataclass(frozen=True, eq=False)
class Message:
    """A message between a site and the server. Names are printable, at most 200 characters long."""

    kind: str  # what the message is, such as "statistics"
    site: str  # the site that sends the message or gets it
    round: int  # the exchange it belongs to, from 0 on
    arrays: dict[str, NDArray[Any]] = field(default_factory=dict)  # in the precision in which they travel; see `DTYPES`
    values: dict[str, Any] = field(default_factory=dict)  # what else JSON can hold, with finite numbers only

    def read(self, kind: type[T]) -> T:
        """Unpack the content as this type; raise MessageError if it is something else."""
        return unpack(self.values, self.arrays, kind)


def encode(message: Message) -> bytes:
    """Encode a message as the bytes that `decode` reads; equal messages give equal bytes.

    MessageError if the message holds something that cannot be sent.
    """
    try:
        header = _header_text(message.kind, message.site, message.round, message.values)
        # safetensors needs contiguous memory, and np.ascontiguousarray would turn a number into a vector
        arrays = {name: np.asarray(array, order="C") for name, array in message.arrays.items()}
        _check_arrays(arrays)
        body = to_body(arrays, metadata={METADATA: header})
        if int.from_bytes(body[:8], "little") > MAX_HEADER_BYTES:
            raise ValueError(f"its header is longer than {MAX_HEADER_BYTES} bytes; send long lists as arrays")  # noqa: TRY301
    except (TypeError, ValueError, RecursionError, SafetensorError) as error:
        site = message.site if is_name(message.site) else None
        raise MessageError(f"cannot send the message: {str(error)[:300]}", site) from error
    start = MAGIC + VERSION.to_bytes(2, "little")
    return b"".join([start, _digest(start, body), body])


def decode(payload: bytes, *, site: str | None = None, max_bytes: int = MAX_BYTES) -> Message:
    """Decode bytes from any source into a well-formed message; raise MessageError if they are none.

    `site` is whom the transport says they came from, for the errors. Whether the message says the same, and whether it
    is what was asked for, is for `expect` and the codec. The arrays can be written to.
    """
    if len(payload) > max_bytes:
        raise MessageError(f"message has {len(payload)} bytes, at most {max_bytes} are allowed", site)
    _check_frame(payload, site)
    body = bytes(memoryview(payload)[BODY:])
    if int.from_bytes(body[:8], "little") > MAX_HEADER_BYTES:
        raise MessageError(f"message header is longer than {MAX_HEADER_BYTES} bytes", site)
    try:
        arrays = from_body(body)
        _check_arrays(arrays)
        kind, sender, round_number, values = _read_header(body)
    except KeyError as error:  # safetensors knows more types than NumPy has
        reason = f"message has an array of type {str(error)[:300]}, allowed are {sorted(DTYPES)}"
        raise MessageError(reason, site) from error
    except (SafetensorError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise MessageError(f"message is not well formed: {str(error)[:300]}", site) from error
    return Message(kind, sender, round_number, arrays, values)


def expect(message: Message, *, kind: str | None = None, round: int | None = None, site: str | None = None) -> None:  # noqa: A002
    """Raise MessageError for a message that is not the expected one; None accepts anything."""
    for name, wanted in (("site", site), ("kind", kind), ("round", round)):
        found = getattr(message, name)
        if wanted is not None and found != wanted:
            reason = f"message has {name} {found!r}, expected {wanted!r}"
            raise MessageError(reason, message.site if site is None else site)


def _check_frame(payload: bytes, site: str | None) -> None:
    """Refuse bytes that are no message, then other versions (whose frame may differ), then damaged messages."""
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
    """Write the header as text; raise MessageError for what cannot be sent."""
    for name, value in (("kind", kind), ("site", site)):
        if not is_name(value):
            raise ValueError(
                f"{name} must be 1 to {LONGEST_NAME} printable characters, got {str(value)[:LONGEST_NAME]!r}"
            )
    if type(round_number) is not int or not 0 <= round_number < 2**63:
        raise ValueError(f"round must be a whole number from 0 on, got {round_number!r}")
    if not isinstance(values, dict) or not set(map(type, values)) <= {str}:
        raise ValueError("values must be a dict with text as keys")
    return WRITER.encode([kind, site, round_number, values])


def _read_header(body: bytes) -> tuple[str, str, int, dict[str, Any]]:
    """Read the header of a body that safetensors has accepted; refuse any text that `encode` does not write."""
    length = int.from_bytes(body[:8], "little")
    metadata = json.loads(body[8 : 8 + length]).get("__metadata__")
    if not metadata or METADATA not in metadata:
        raise ValueError("it has no FedHK header")
    text = metadata[METADATA]
    kind, site, round_number, values = json.loads(text)
    if len(metadata) != 1 or _header_text(kind, site, round_number, values) != text:
        raise ValueError("its header is not written in the one way of FedHK")
    return kind, site, round_number, values


def _check_arrays(arrays: Mapping[str, NDArray[Any]]) -> None:
    """Refuse arrays that cannot be sent, and truth values other than 0 and 1.

    NumPy counts on these when it selects rows, and would write past the end.
    """
    for name, array in arrays.items():
        if not isinstance(name, str) or name in ("", "__metadata__"):
            raise ValueError(f"{name!r} is no name for an array")
        if array.dtype.kind not in "bfiu" or array.dtype.itemsize > 8:
            raise ValueError(f"array {name[:LONGEST_NAME]!r} has dtype {array.dtype}, allowed are {sorted(DTYPES)}")
        if array.dtype.kind == "b" and array.view(np.uint8).max(initial=0) > 1:
            raise ValueError(f"array {name[:LONGEST_NAME]!r} has values that are neither true nor false")
