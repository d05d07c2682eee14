"""What a site and the server agree on before a secure sum, and how what they send is read.

A parcel is what one of them says to the other in one step: a dict of JSON values and of arrays of whole numbers, with
bytes as uint8. `split_parcel` tells them apart for a message with arrays and values; the union of both is the parcel
again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from hashlib import sha256
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedhk.errors import FedHKError, MessageError
from fedhk.privacy.shamir import SHARE_BYTES

__all__ = [
    "STEPS",
    "OutOfRangeError",
    "Parcel",
    "Terms",
    "ThresholdError",
    "default_threshold",
    "split_parcel",
]

Parcel = dict[str, Any]
ByteArray = NDArray[np.uint8]

STEPS = ("keys", "shares", "input", "unmask")
"""The steps in their order; the last two are repeated for every sum of a session."""
MAX_SUMS = 10_000
MAX_NAME = 200
LIMIT = 2**63


class ThresholdError(FedHKError, RuntimeError):
    """Too few sites are left for a sum to be opened; nothing of it is known to anybody.

    Parameters
    ----------
    what : str
        The step and the sum that are given up.
    present, needed : int
        How many sites answered, and how many are needed.
    refused : mapping of str to str
        Why answers were not used, by site.
    """

    def __init__(self, what: str, present: int, needed: int, refused: Mapping[str, str]) -> None:
        reasons = "".join(f"; site {site!r}: {reason}" for site, reason in sorted(refused.items())[:5])
        super().__init__(f"{what}: {present} sites answered, {needed} are needed{reasons}")
        self.what = what
        self.present = present
        self.needed = needed
        self.refused = dict(refused)

    def with_reasons(self, refused: Mapping[str, str]) -> ThresholdError:
        """The same, with what sites said themselves."""
        return ThresholdError(self.what, self.present, self.needed, dict(refused) | self.refused)


class OutOfRangeError(FedHKError, OverflowError):
    """Numbers beyond what a sum modulo 2^64 can hold, or beyond what was agreed."""


@dataclass(frozen=True)
class Terms:
    """What holds for all sums of a session.

    Parameters
    ----------
    session : str
        Its name, never used twice.
    threshold : int
        How many sites must answer for a sum to be opened, and how many shares give a secret back.
    sums : int
        For how many sums keys and shares are agreed.
    bound : int
        Largest absolute value that a site may put in.
    """

    session: str
    threshold: int
    sums: int
    bound: int

    def __post_init__(self) -> None:
        if not isinstance(self.session, str) or not 0 < len(self.session) <= MAX_NAME:
            raise ValueError(f"session must be a text of 1 to {MAX_NAME} characters, got {self.session!r}")
        for name, least, most in (("threshold", 2, MAX_SUMS), ("sums", 1, MAX_SUMS), ("bound", 0, LIMIT - 1)):
            value = getattr(self, name)
            if type(value) is not int or not least <= value <= most:
                raise ValueError(f"{name} must be a whole number from {least} to {most}, got {value!r}")

    @classmethod
    def of(cls, parcel: Parcel, site: str) -> Terms:
        """The terms that a request of the step "keys" offers to a site."""
        try:
            return cls(*(parcel.get(name) for name in ("session", "threshold", "sums", "bound")))  # type: ignore[arg-type]
        except ValueError as error:
            raise MessageError(f"the server's terms cannot be used: {error}", site) from error

    def values(self) -> Parcel:
        return asdict(self)

    def check_sites(self, n_sites: int) -> None:
        """Refuse a number of sites that the terms do not fit.

        A threshold of half the sites would let a server ask one half for a site's seed and the other half for its mask
        key, and have both.
        """
        if n_sites < self.threshold:
            raise ValueError(f"{n_sites} sites take part, the threshold is {self.threshold}")
        if 2 * self.threshold <= n_sites:
            raise ValueError(f"threshold={self.threshold} must be more than half of the {n_sites} sites")
        if n_sites * self.bound >= LIMIT:
            raise OutOfRangeError(
                f"{n_sites} sites with numbers up to {self.bound} can sum to {n_sites * self.bound}, "
                f"which must be below 2^63; use fewer binary digits after the point"
            )


def as_bytes(content: bytes) -> ByteArray:
    """Bytes as an array, as they travel."""
    return np.frombuffer(content, np.uint8)


def envelope_bytes(sums: int) -> int:
    """Length of an envelope: a nonce, a tag, and two shares for each sum."""
    return 12 + 16 + sums * 2 * SHARE_BYTES


def default_threshold(n_sites: int) -> int:
    """More than two thirds of the sites, so that 30 % of them may drop out."""
    return 2 * n_sites // 3 + 1


def split_parcel(parcel: Parcel) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """The arrays and the JSON values of a parcel."""
    arrays = {name: value for name, value in parcel.items() if isinstance(value, np.ndarray)}
    return arrays, {name: value for name, value in parcel.items() if name not in arrays}


def parcel_digest(parcel: Parcel, vector: NDArray[Any] | None = None) -> str:
    """The same for equal content, whatever the order of the names."""
    arrays, values = split_parcel(parcel if vector is None else parcel | {"the site's numbers": vector})
    state = sha256(json.dumps(values, sort_keys=True, default=repr).encode())
    for name, array in sorted(arrays.items()):
        state.update(json.dumps([name, array.dtype.str, array.shape]).encode())
        state.update(np.ascontiguousarray(array).tobytes())
    return state.hexdigest()


def take_array(parcel: Parcel, name: str, dtype: Any, shape: tuple[int, ...], site: str) -> NDArray[Any]:
    """An array of a parcel from anybody; `site` is named where it is not what was expected."""
    array = parcel.get(name)
    if not isinstance(array, np.ndarray) or array.dtype != dtype or array.shape != shape:
        found = f"{array.dtype} of shape {array.shape}" if isinstance(array, np.ndarray) else type(array).__name__
        raise MessageError(f"{name!r} is {found}, expected {np.dtype(dtype)} of shape {shape}", site)
    return array


def take_number(parcel: Parcel, name: str, site: str) -> int:
    """A whole number from 0 on."""
    value = parcel.get(name)
    if type(value) is not int or value < 0:
        raise MessageError(f"{name!r} is {str(value)[:MAX_NAME]!r}, expected a whole number from 0 on", site)
    return value


def take_names(parcel: Parcel, name: str, site: str) -> tuple[str, ...]:
    """Different names in their order."""
    names = parcel.get(name)
    if not isinstance(names, list | tuple) or not all(isinstance(one, str) for one in names):
        raise MessageError(f"{name!r} is no list of names", site)
    if any(first >= second for first, second in pairwise(names)):
        raise MessageError(f"{name!r} names a site twice, or not in the order of names", site)
    return tuple(names)


def expect_parcel(parcel: Parcel, expected: Mapping[str, Any], site: str) -> None:
    """Refuse a parcel of another session, step or sum."""
    for name, wanted in expected.items():
        found = parcel.get(name)
        if found != wanted:
            raise MessageError(f"{name} is {str(found)[:MAX_NAME]!r}, expected {str(wanted)!r}", site)
