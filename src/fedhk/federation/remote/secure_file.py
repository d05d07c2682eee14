"""What a site keeps of its masks, as arrays and values of a file that only its owner can read."""

from __future__ import annotations

from typing import Any

from fedhk.federation.payloads import Arrays, Values
from fedhk.privacy.secure_roster import KEY_BYTES, Roster
from fedhk.privacy.secure_site import SiteSession
from fedhk.privacy.secure_terms import ByteArray, Parcel, Terms, as_bytes, split_parcel

KEYS = 2
"""Secrets of a sum: the seed of the site's own mask, and its private mask key."""


def pack_session(session: SiteSession) -> tuple[Arrays, Values]:
    """A session as arrays and JSON values."""
    arrays: Arrays = {"cipher_private": as_bytes(session.cipher_private)}
    arrays["secrets"] = as_bytes(b"".join(b"".join(pair) for pair in session.secrets.values()))
    values: Values = {
        "terms": session.terms.values(),
        "secrets": list(session.secrets),
        "participants": list(session.participants),
        "at": [session.step, session.number, session.asked],
    }
    parcels = {"advert": session.advert, "reply": session.reply}
    if session.roster is not None:
        parcels["roster"] = session.roster.parcel()
    for name, parcel in parcels.items():
        of_parcel, values[name] = split_parcel(parcel)
        arrays |= {f"{name}.{key}": array for key, array in of_parcel.items()}
    for name, shares in (("own_shares", session.own_shares), ("held", session.held)):
        arrays |= {f"{name}.{number}": array for number, array in shares.items()}
    return arrays, values


def unpack_session(arrays: Arrays, values: Values, site: str) -> SiteSession:
    """The session that `pack_session` packed."""
    terms = Terms(**values["terms"])
    keys = arrays["secrets"].reshape(-1, KEYS, KEY_BYTES)
    secrets = {n: (bytes(seed), bytes(key)) for n, (seed, key) in zip(values["secrets"], keys, strict=True)}
    step, number, asked = values["at"]
    roster = Roster.of(_parcel(arrays, values, "roster"), terms.sums, site) if "roster" in values else None
    return SiteSession(
        terms=terms,
        advert=_parcel(arrays, values, "advert"),
        cipher_private=bytes(arrays["cipher_private"]),
        secrets=secrets,
        roster=roster,
        own_shares=_shares(arrays, "own_shares"),
        participants=tuple(values["participants"]),
        held=_shares(arrays, "held"),
        step=str(step),
        number=int(number),
        asked=str(asked),
        reply=_parcel(arrays, values, "reply"),
    )


def _parcel(arrays: Arrays, values: dict[str, Any], name: str) -> Parcel:
    start = f"{name}."
    told: Parcel = values[name]
    return told | {key.removeprefix(start): array for key, array in arrays.items() if key.startswith(start)}


def _shares(arrays: Arrays, name: str) -> dict[int, ByteArray]:
    start = f"{name}."
    found = {int(key.removeprefix(start)): array for key, array in arrays.items() if key.startswith(start)}
    return dict(sorted(found.items()))
