"""What the server does in a secure sum: it carries keys and envelopes, adds masked numbers, and takes the masks away.

Pure steps from state to state, save for the session's random name. `fedhk.privacy.secure_sum` says what the server can
learn from all that it sees.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedhk.errors import MessageError
from fedhk.privacy import shamir
from fedhk.privacy.masks import MaskArray, add_mask
from fedhk.privacy.secure_opening import check_range, opened, recovered
from fedhk.privacy.secure_roster import KEY_BYTES, SIGNATURE_BYTES, Roster
from fedhk.privacy.secure_terms import (
    ByteArray,
    Parcel,
    Terms,
    ThresholdError,
    envelope_bytes,
    expect_parcel,
    take_array,
)

__all__ = ["SecureServer", "begin_sum", "open_session", "requests", "server_step"]


@dataclass(frozen=True, eq=False)
class SecureServer:
    """What the server keeps of a session.

    Parameters
    ----------
    terms : Terms
        What holds for all sums of the session.
    sites : tuple of str
        Who is asked for keys.
    step : str
        What the sites are asked next: "keys", "shares", "input" or "unmask"; "ready" where `begin_sum` is next.
    roster : Roster or None
        The public keys of all sites that gave any.
    envelopes : dict of str to uint8 array of shape (n, bytes)
        By sender; row i is for site i of the roster.
    served : frozenset of str
        Sites that have certainly got their envelopes.
    number : int
        The sum that is under way or was the last.
    length : int
        How many numbers it has.
    survivors : tuple of str
        Whose numbers are in it.
    masked : uint64 array of shape (length,) or None
        Their masked numbers, added.
    total : int64 array of shape (length,) or None
        The last sum that was opened.
    """

    terms: Terms
    sites: tuple[str, ...]
    step: str = "keys"
    roster: Roster | None = field(default=None, repr=False)
    envelopes: dict[str, ByteArray] = field(default_factory=dict, repr=False)
    served: frozenset[str] = frozenset()
    number: int = -1
    length: int = 0
    survivors: tuple[str, ...] = ()
    masked: MaskArray | None = field(default=None, repr=False)
    total: NDArray[np.int64] | None = field(default=None, repr=False)

    @property
    def participants(self) -> tuple[str, ...]:
        """The sites whose shares the others can have; masks are made among them."""
        return tuple(sorted(self.envelopes))

    @property
    def keys(self) -> Roster:
        """The public keys, after the step in which they came."""
        if self.roster is None:
            raise ValueError("the session has no keys yet")
        return self.roster


def open_session(
    sites: Iterable[str], threshold: int, *, bound: int, sums: int = 1, session: str | None = None
) -> SecureServer:
    """A new session: keys and shares are agreed in two exchanges, then each sum takes two.

    Parameters
    ----------
    sites : iterable of str
        Who is asked.
    threshold : int
        How many must answer each time: more than half of the sites. `default_threshold` gives more than two thirds.
    bound : int
        Largest absolute value that a site may put in; times the number of sites it must be below 2^63.
    sums : int, default=1
        For how many sums keys and shares are agreed at once.
    session : str, optional
        A name that is never used twice; random by default.
    """
    names = tuple(sorted(set(sites)))
    terms = Terms(secrets.token_hex(16) if session is None else session, threshold, sums, bound)
    terms.check_sites(len(names))
    return SecureServer(terms, names)


def begin_sum(server: SecureServer, length: int) -> SecureServer:
    """Go on to the next sum of a session, whether or not the one before could be opened.

    A sum that was given up is never asked for again: its masks are spent.

    Raises
    ------
    ValueError
        If the session has no keys yet or no sums left; open a new one then.
    """
    if server.step not in ("ready", "input", "unmask"):
        raise ValueError(f"the session is at the step {server.step!r}; keys and shares come before a sum")
    if server.number + 1 >= server.terms.sums:
        raise ValueError(f"all {server.terms.sums} sums of the session are used; open a new session")
    return replace(server, step="input", number=server.number + 1, length=length, survivors=(), masked=None, total=None)


def requests(server: SecureServer) -> dict[str, Parcel]:
    """What each site is asked next."""
    common: Parcel = {"step": server.step, "session": server.terms.session}
    if server.step == "keys":
        return dict.fromkeys(server.sites, common | server.terms.values())
    if server.step == "shares":
        return dict.fromkeys(server.keys.names, common | server.keys.parcel())
    common["sum"] = server.number
    if server.step == "input":
        common["length"] = server.length
        return {site: common | _post(server, site) for site in server.participants}
    if server.step == "unmask":
        return dict.fromkeys(server.survivors, common | {"survivors": list(server.survivors)})
    raise ValueError(f"nothing is to be asked at the step {server.step!r}; begin a sum first")


def _post(server: SecureServer, site: str) -> Parcel:
    """The envelopes for a site, until it has shown that it got them."""
    if site in server.served:
        return {}
    row = server.keys.names.index(site)
    envelopes = np.stack([server.envelopes[sender][row] for sender in server.participants])
    return {"participants": list(server.participants), "envelopes": envelopes}


def server_step(server: SecureServer, replies: Mapping[str, Parcel]) -> tuple[SecureServer, dict[str, str]]:
    """Take the answers of one exchange.

    Parameters
    ----------
    server : SecureServer
        The server before.
    replies : mapping of str to dict
        What came, by the site that the transport says it came from.

    Returns
    -------
    server : SecureServer
        The server after. After the step "unmask" it is "ready", and `total` is the sum over `survivors`.
    refused : dict of str to str
        Why answers were not used, by site.

    Raises
    ------
    ThresholdError
        If fewer usable answers came than the threshold. `begin_sum` can go on, where keys and shares are agreed.
    MessageError
        If the masks of a site cannot be taken away because the shares that it gave the others are wrong.
    OutOfRangeError
        If the sum is not one of numbers within the bound.
    """
    asked = requests(server)
    read, take = STEPS[server.step]
    good: dict[str, Any] = {}
    refused: dict[str, str] = {}
    expected: dict[str, Any] = {"step": server.step, "session": server.terms.session}
    if server.step in ("input", "unmask"):
        expected["sum"] = server.number
    for site, reply in sorted(replies.items()):
        try:
            if site not in asked:
                raise MessageError(f"it was not asked for the step {server.step!r}", site)  # noqa: TRY301
            expect_parcel(reply, expected, site)
            good[site] = read(server, reply, site)
        except MessageError as error:
            refused[site] = error.reason
    _check_enough(server, len(good), refused)
    server, more = take(server, good)
    return server, refused | more


def _check_enough(server: SecureServer, present: int, refused: Mapping[str, str]) -> None:
    if present < server.terms.threshold:
        of_sum = f" of sum {server.number}" if server.step in ("input", "unmask") else ""
        raise ThresholdError(f"step {server.step!r}{of_sum} is given up", present, server.terms.threshold, refused)


# --------------------------------------------------------------------------------------------------------- keys, shares


def _read_advert(server: SecureServer, reply: Parcel, site: str) -> tuple[ByteArray, ...]:
    shapes = {
        "cipher_key": (KEY_BYTES,),
        "mask_keys": (server.terms.sums, KEY_BYTES),
        "signature": (SIGNATURE_BYTES,),
    }
    return tuple(take_array(reply, name, np.uint8, shape, site) for name, shape in shapes.items())


def _take_adverts(server: SecureServer, good: dict[str, Any]) -> tuple[SecureServer, dict[str, str]]:
    roster = Roster(tuple(good), *(np.stack(keys) for keys in zip(*good.values(), strict=True)))
    return replace(server, step="shares", roster=roster), {}


def _read_envelopes(server: SecureServer, reply: Parcel, site: str) -> ByteArray:
    return take_array(reply, "envelopes", np.uint8, (len(server.keys.names), envelope_bytes(server.terms.sums)), site)


def _take_envelopes(server: SecureServer, good: dict[str, Any]) -> tuple[SecureServer, dict[str, str]]:
    return replace(server, step="ready", envelopes=good), {}


# -------------------------------------------------------------------------------------------------------- input, unmask


def _read_masked(server: SecureServer, reply: Parcel, site: str) -> MaskArray:
    return take_array(reply, "masked", np.uint64, (server.length,), site)


def _take_masked(server: SecureServer, good: dict[str, Any]) -> tuple[SecureServer, dict[str, str]]:
    masked = np.zeros(server.length, np.uint64)
    for numbers in good.values():
        add_mask(masked, numbers)
    survivors, served = tuple(good), server.served | good.keys()
    return replace(server, step="unmask", survivors=survivors, served=served, masked=masked), {}


def _read_shares(server: SecureServer, reply: Parcel, site: str) -> ByteArray:
    return take_array(reply, "shares", np.uint8, (len(server.participants), shamir.SHARE_BYTES), site)


def _take_shares(server: SecureServer, good: dict[str, Any]) -> tuple[SecureServer, dict[str, str]]:
    assert server.masked is not None  # noqa: S101 - the step before made it
    secret_of, liars = recovered(server.keys, server.participants, good, server.terms.threshold)
    context = server.keys.context(server.terms, server.participants)
    total = opened(server.masked, server.keys, server.survivors, secret_of, context=context, number=server.number)
    check_range(total, len(server.survivors) * server.terms.bound)
    return replace(server, step="ready", masked=None, total=total), liars


Reader = Callable[[SecureServer, Parcel, str], Any]
Taker = Callable[[SecureServer, dict[str, Any]], tuple[SecureServer, dict[str, str]]]
STEPS: dict[str, tuple[Reader, Taker]] = {
    "keys": (_read_advert, _take_adverts),
    "shares": (_read_envelopes, _take_envelopes),
    "input": (_read_masked, _take_masked),
    "unmask": (_read_shares, _take_shares),
}
