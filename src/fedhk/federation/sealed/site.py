"""What a site does in a sealed run: it makes its vector, adds noise, writes that down, and puts a mask on it."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedhk.data.scaling import Reference
from fedhk.errors import MessageError
from fedhk.federation.messages import Message
from fedhk.federation.payloads import Arrays, Values
from fedhk.federation.sealed.catalogue import phase_named
from fedhk.federation.sealed.phases import SumPhase
from fedhk.privacy.fixed_point import to_grid
from fedhk.privacy.noise import discrete_gaussian
from fedhk.privacy.secure_site import site_step
from fedhk.privacy.secure_terms import parcel_digest, split_parcel
from fedhk.privacy.sensitivity import grid_sensitivity

if TYPE_CHECKING:
    from fedhk.federation.site import SiteState
    from fedhk.privacy.mechanism import DifferentialPrivacy

# Steps of the grid in what one row can change: fine enough that rounding adds nothing to the noise.
STEPS = 2.0**16

# A budget is compared with what rounding makes of it.
ROUNDING = 1e-6

MASK = "mask."


def sealed_answer(site: SiteState, request: Message, workers: int) -> tuple[SiteState, Arrays, Values]:
    """A site's part of one sum, or of the agreement on masks for it."""
    phase = phase_named(request.kind, private=site.privacy is not None)
    if site.privacy is not None and not all(_coefficients_bounded(reference) for reference in site.references):
        raise MessageError("scales with which a row could say more than the noise is sized for", site.name)
    parcel = mask_parcel(request.arrays, request.values)
    if (parcel is not None) != (site.secure is not None):
        raise MessageError(
            "the server asks for sums in the open, this site gives masked ones only"
            if site.secure is not None
            else "the server asks for masked sums, this site was not set up for them",
            site.name,
        )
    numbers = None
    if parcel is None or parcel.get("step") == "input":
        site = phase.hear(site, request)
        numbers = _released(site, phase, request, parcel, workers)
    if site.secure is None or parcel is None:
        assert numbers is not None  # noqa: S101 - without masks there is one step
        return site, {"sum": numbers}, {}
    secure, reply = site_step(site.secure, parcel, numbers)
    arrays, values = split_parcel(reply)
    return (
        replace(site, secure=secure),
        {MASK + name: array for name, array in arrays.items()},
        {MASK + name: value for name, value in values.items()},
    )


def mask_parcel(arrays: Any, values: Any) -> dict[str, Any] | None:
    """What a message says about masks, or None."""
    found = {name.removeprefix(MASK): part for name, part in (dict(arrays) | dict(values)).items() if name[:5] == MASK}
    return found or None


def _coefficients_bounded(reference: Reference) -> bool:
    """Whether no cell of a row counts for more than 1."""
    numbers = np.concatenate([reference.shift, reference.low, reference.span])
    known = reference.heat_coef in ("uniform", "minmax")
    return bool(known and np.isfinite(numbers).all() and np.all(reference.span > 0))


def grid_step(sensitivity: float) -> float:
    """Of what the numbers of a sum with noise are whole multiples: a power of two far below what a row can change."""
    return float(2.0 ** np.floor(np.log2(sensitivity / STEPS)))


def _released(
    site: SiteState, phase: SumPhase, request: Message, parcel: dict[str, Any] | None, workers: int
) -> NDArray[np.int64]:
    """The numbers that leave the site, before masks."""
    privacy = site.privacy
    if privacy is None:
        return to_grid(phase.values(site, request, workers), float(request.values["step"]))
    run, ledger = site.run, site.ledger
    if ledger is None:
        raise MessageError("a site with a privacy budget needs a ledger", site.name)
    known = ledger.payload(run, request.round)
    if known is not None:
        numbers = np.frombuffer(known, np.int64)
        if parcel is not None and not _is_last_question(site, parcel, numbers):
            raise MessageError("asked to put numbers that were released already under another mask", site.name)
        return numbers
    rounds = request.values.get("rounds")
    if type(rounds) is not int or not 1 <= rounds <= privacy.rounds:
        allowed = f"this site's budget is for 1 to {privacy.rounds}"
        raise MessageError(f"the server speaks of {str(rounds)[:50]!r} rounds, {allowed}", site.name)
    multiplier = privacy.multiplier(request.kind, rounds)
    _check_budget(privacy, [*ledger.multipliers(run), multiplier], site.name)
    sensitivity = phase.sensitivity(request.values, site.parameters, privacy.neighbours)
    if not 0 < sensitivity < math.inf:
        raise MessageError(f"the server asks for a sum that a row can change by {sensitivity:g}", site.name)
    step = grid_step(sensitivity)
    numbers = to_grid(phase.values(site, request, workers), step)
    sigma = multiplier * grid_sensitivity(sensitivity, step, numbers.size) * _own_part(site)
    numbers = numbers + discrete_gaussian(sigma, numbers.size)
    payload = ledger.record(
        run=run,
        exchange=request.round,
        phase=request.kind,
        multiplier=multiplier,
        sensitivity=sensitivity,
        payload=numbers.tobytes(),
    )
    return np.frombuffer(payload, np.int64)


def _is_last_question(site: SiteState, parcel: dict[str, Any], numbers: NDArray[np.int64]) -> bool:
    """Whether the site has answered just this, so that the same masked numbers may go out again."""
    session = None if site.secure is None else site.secure.session
    return session is not None and session.asked == parcel_digest(parcel, numbers)


def _check_budget(privacy: DifferentialPrivacy, multipliers: list[float], site: str) -> None:
    if sum(multiplier**-2 for multiplier in multipliers) > privacy.budget * (1 + ROUNDING):
        raise MessageError(
            f"the privacy budget of the run, epsilon={privacy.epsilon:g}, does not allow another release", site
        )


def _own_part(site: SiteState) -> float:
    """The part of the noise that this site adds: all of it, or a share such that enough sites together add all."""
    if site.secure is None or site.privacy is None:
        return 1.0
    session = site.secure.session
    if session is None:
        raise MessageError("asked for a masked sum before masks were agreed on", site.name)
    honest = session.terms.threshold - site.privacy.colluders
    if honest < 1:
        raise MessageError(
            f"colluders={site.privacy.colluders} leave no honest site among the {session.terms.threshold} that a sum "
            "needs",
            site.name,
        )
    return float(1.0 / np.sqrt(honest))
