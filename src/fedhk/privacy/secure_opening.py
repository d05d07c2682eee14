"""How the server opens a secure sum: secrets from shares, then masks taken away, then a look at the range."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from fedhk.errors import MessageError
from fedhk.privacy import shamir
from fedhk.privacy._lazy import primitives
from fedhk.privacy.masks import MaskArray, add_mask, pair_mask, self_mask
from fedhk.privacy.secure_roster import Roster
from fedhk.privacy.secure_terms import ByteArray, OutOfRangeError

__all__ = ["check_range", "opened", "recovered"]


def recovered(
    keys: Roster, participants: Sequence[str], shares: Mapping[str, ByteArray], threshold: int
) -> tuple[dict[str, bytes], dict[str, str]]:
    """Each participant's seed or mask key.

    Parameters
    ----------
    keys : Roster
        Says which point of a share belongs to which site.
    participants : sequence of str
        Whose secrets they are.
    shares : mapping of str to uint8 array of shape (participants, 48)
        By the site that gave them.
    threshold : int
        How many are needed.

    Returns
    -------
    secret_of : dict of str to bytes
        By participant.
    liars : dict of str to str
        A site that was left out because its shares do not fit, and the reason. One such site does no harm where the
        others are enough.

    Raises
    ------
    MessageError
        Naming a participant whose secret cannot be had.
    """
    faults = []
    for liar in (None, *shares):
        trusted = {site: rows for site, rows in shares.items() if site != liar}
        if len(trusted) < threshold:
            break
        try:
            secret_of = _recovered_from(keys, participants, trusted, threshold)
        except MessageError as error:
            faults.append(error)
        else:
            return secret_of, {} if liar is None else {liar: "the shares that it gave do not fit those of the others"}
    raise faults[0]


def _recovered_from(
    keys: Roster, participants: Sequence[str], shares: Mapping[str, ByteArray], threshold: int
) -> dict[str, bytes]:
    points = {site: keys.names.index(site) + 1 for site in shares}
    secret_of = {}
    for row, owner in enumerate(participants):
        of_owner = {points[site]: bytes(rows[row]) for site, rows in shares.items()}
        try:
            secret_of[owner] = shamir.recover(of_owner, threshold)
        except shamir.ShareError as error:
            givers = ", ".join(repr(site) for site in shares)
            reason = (
                f"its mask cannot be taken away: {error}; it gave out wrong shares, or one of {givers} did not pass "
            )
            raise MessageError(reason + "on what it got", owner) from error
    return secret_of


def opened(
    masked: MaskArray,
    keys: Roster,
    survivors: Sequence[str],
    secret_of: Mapping[str, bytes],
    *,
    context: str,
    number: int,
) -> NDArray[np.int64]:
    """The sum of the survivors: without their own masks, and without their masks with sites that dropped out.

    Parameters
    ----------
    masked : uint64 array of shape (length,)
        The survivors' masked numbers, added.
    keys : Roster
        The public keys.
    survivors : sequence of str
        Whose numbers are in the sum.
    secret_of : mapping of str to bytes
        The seed of each survivor, and the private mask key of each participant that dropped out.
    context : str
        Digest of the session and of who takes part.
    number : int
        The sum within the session.

    Raises
    ------
    MessageError
        If a site shared another mask key than the one that it made known.
    """
    total = masked.copy()
    length = total.size
    for site, secret in secret_of.items():
        if site in survivors:
            add_mask(total, self_mask(secret, site, length, context=context, number=number), sign=-1)
            continue
        if primitives.public_key(secret) != keys.mask_key(site, number):
            raise MessageError("the shares that it gave the other sites are not of its mask key", site)
        for other in survivors:
            # at the survivor the mask has the other sign, so adding takes it away
            key = keys.mask_key(other, number)
            add_mask(total, pair_mask(secret, key, site, other, length, context=context, number=number))
    return total.view(np.int64)


def check_range(sums: NDArray[np.int64], limit: int) -> None:
    """Refuse a sum that numbers within the bound cannot have.

    Raises
    ------
    OutOfRangeError
        Naming what was found and the limit.
    """
    if sums.size and not -limit <= int(sums.min()) <= int(sums.max()) <= limit:
        raise OutOfRangeError(
            f"the sum has numbers from {sums.min()} to {sums.max()}, beyond {limit} in size: a site did not keep to "
            "the bound, or the sites did not all see the same participants"
        )
