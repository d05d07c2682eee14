"""What the server does in a sealed run: it asks for sums, adds them, takes masks away, and goes from phase to phase."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedhk.data.moments import Moments
from fedhk.errors import MessageError
from fedhk.federation.describe import Description, agreed_views
from fedhk.federation.diffusion.phase import told_stage
from fedhk.federation.messages import ArraySpec, Message, check_arrays, expect
from fedhk.federation.payloads import pack_references
from fedhk.federation.sealed.catalogue import phase_named
from fedhk.federation.sealed.phases import SumPhase, bounded, held_sealed, most_of_site
from fedhk.federation.sealed.rounds import noisy_rounds, settled
from fedhk.federation.sealed.site import MASK, grid_step, mask_parcel
from fedhk.federation.sealed.state import Sealed
from fedhk.federation.state import HELD, Plan, ServerState
from fedhk.privacy.fixed_point import from_grid
from fedhk.privacy.secure_server import SecureServer, begin_sum, open_session, requests
from fedhk.privacy.secure_server import server_step as secure_step
from fedhk.privacy.secure_terms import split_parcel
from fedhk.privacy.sensitivity import grid_sensitivity

# Sums for which masks are agreed on at once; a new agreement takes two exchanges.
SUMS_PER_SESSION = 16


def begun(plan: Plan, state: ServerState) -> ServerState:
    """The state with what a sealed run needs: a name of its own, and a session of masks that is ready to be asked."""
    if state.sealed is None:
        state = replace(state, sealed=Sealed(secrets.token_hex(8)))
    if plan.secure is None or state.phase in ("describe", "done"):
        return state
    sealed = held_sealed(state)
    session = sealed.secure
    used_up = session is not None and session.step == "ready" and session.number + 1 >= session.terms.sums
    if session is None or used_up:
        session = _new_session(plan, sealed)
    if session.step == "ready":
        session = begin_sum(session, phase_of(plan, state).size(plan, state))
    return replace(state, sealed=replace(sealed, secure=session))


def _new_session(plan: Plan, sealed: Sealed) -> SecureServer:
    assert plan.secure is not None  # noqa: S101 - asked of a run with secure sums only
    n_sites = len(sealed.sites)
    threshold = plan.secure.threshold_of(n_sites)
    return open_session(sealed.sites, threshold, bound=most_of_site(n_sites), sums=SUMS_PER_SESSION)


def phase_of(plan: Plan, state: ServerState) -> SumPhase:
    """The sum that is under way."""
    return phase_named(state.phase, private=plan.privacy is not None)


def asked_sites(state: ServerState, present: Sequence[str]) -> list[str]:
    """The sites that are asked in this exchange of a sealed run."""
    session = None if state.sealed is None else state.sealed.secure
    if session is None:
        return list(present)
    wanted = requests(session)
    return [site for site in present if site in wanted]


def sealed_request(plan: Plan, state: ServerState, site: str, *, informed: bool, holds: bool) -> Message:
    """What the server says to a site."""
    sealed = held_sealed(state)
    if state.phase == "describe":
        values: dict[str, Any] = {"schema": True, "run": sealed.run, "scaling": plan.settings.scaling, "ranges": False}
        return Message("describe", "*", state.exchange, {}, values)
    arrays: dict[str, Any] = {}
    values = {"sealed": True, "run": sealed.run}
    if plan.privacy is not None:
        values["rounds"] = noisy_rounds(plan)
    if sealed.secure is not None:
        parcel_arrays, parcel_values = split_parcel(requests(sealed.secure)[site])
        arrays |= {MASK + name: array for name, array in parcel_arrays.items()}
        values |= {MASK + name: value for name, value in parcel_values.items()}
        if sealed.secure.step != "input":
            return Message(state.phase, "*", state.exchange, arrays, values)
    if state.references and not informed:
        packed, described = pack_references(state.references, state.names, state.columns)
        arrays |= packed
        values |= described
    phase = phase_of(plan, state)
    told, numbers = phase.tell(plan, state)
    if state.stage is not None:
        more, also = told_stage(state.stage, informed=informed, holds=holds)
        told, numbers = told | more, numbers | also
    if plan.privacy is None:
        numbers = numbers | {"step": phase.grid(state)}
    return Message(state.phase, "*", state.exchange, arrays | told, values | numbers)


def described(plan: Plan, state: ServerState, good: Sequence[tuple[str, Description]]) -> ServerState:
    """The state once views are known: public bounds give the scales, or ranges are asked for."""
    agreed = agreed_views(good)
    if not agreed:
        raise MessageError("no site has a view")
    names, widths = tuple(agreed), [width for width, _ in agreed.values()]
    columns = tuple(names_of for _, names_of in agreed.values())
    sealed = replace(held_sealed(state), sites=tuple(sorted(site for site, _ in good)))
    empty = tuple(Moments.none(width) for width in widths)
    state = replace(state, n_sites=len(good), names=names, columns=columns, moments=empty, sealed=sealed)
    if plan.privacy is not None and plan.privacy.public:
        bounds = plan.privacy.view_bounds(widths)
        low, high = (np.concatenate([pair[end] for pair in bounds]) for end in (0, 1))
    elif plan.settings.scaling == "l2":  # rows have length 1
        low, high = -np.ones(sum(widths)), np.ones(sum(widths))
    else:
        return replace(state, phase="ranges")
    return bounded(plan, replace(state, sealed=replace(sealed, low=low, high=high)))


def sealed_step(
    plan: Plan, state: ServerState, replies: Sequence[Message], unread: Mapping[str, str]
) -> tuple[ServerState, dict[str, str], int]:
    """Take the answers of one exchange: the state after, who was refused and why, and how many answers were used."""
    refused = dict(unread)
    good = []
    for reply in sorted(replies, key=lambda message: message.site):
        try:
            expect(reply, kind=state.phase, round=state.exchange)
            good.append((reply.site, _read(plan, state, reply)))
        except MessageError as error:
            refused[reply.site] = error.reason
    sealed = held_sealed(state)
    # what is told once comes with the question, not with the agreement on masks before it
    asked = sealed.secure is None or sealed.secure.step == "input"
    told = {site for site, _ in good} if asked else set()
    informed = (state.informed - refused.keys()) | told
    holders = (state.holders - refused.keys()) | (told if state.phase in HELD else set())
    state = replace(state, informed=informed, holders=holders, exchange=state.exchange + 1)
    if sealed.secure is None:
        if not good:
            return state, refused, 0
        total = np.sum([numbers for _, numbers in good], axis=0)
        return _taken(plan, state, total, len(good)), refused, len(good)
    session, more = secure_step(sealed.secure, dict(good))
    refused |= more
    state = replace(state, sealed=replace(sealed, secure=session))
    used = len(good) - len(more)
    if session.step != "ready" or session.total is None:
        return state, refused, used
    return _taken(plan, state, session.total, len(session.survivors)), refused, used


def _read(plan: Plan, state: ServerState, reply: Message) -> Any:
    """A site's numbers, or what it says about masks."""
    if plan.secure is not None:
        parcel = mask_parcel(reply.arrays, reply.values)
        if parcel is None:
            raise MessageError("sums in the open, where masked ones were asked for", reply.site)
        return parcel
    size = phase_of(plan, state).size(plan, state)
    check_arrays(reply, {"sum": ArraySpec((size,), ("int64",))})
    numbers = reply.arrays["sum"]
    most = most_of_site(state.n_sites)
    if np.any((numbers > most) | (numbers < -most)):
        raise MessageError("numbers that are too large to be added", reply.site)
    return numbers


def _taken(plan: Plan, state: ServerState, total: NDArray[np.int64], n_sites: int) -> ServerState:
    """The state after a sum is known."""
    phase, sealed = phase_of(plan, state), held_sealed(state)
    if plan.privacy is None:
        return phase.take(plan, state, from_grid(total, phase.grid(state)), 0.0)
    parameters = None if state.progress is None else state.parameters
    sensitivity = phase.sensitivity(phase.tell(plan, state)[1], parameters, plan.privacy.neighbours)
    step = grid_step(sensitivity)
    multiplier = plan.privacy.multiplier(state.phase, noisy_rounds(plan))
    parts = float(n_sites)
    if sealed.secure is not None:
        parts /= max(sealed.secure.terms.threshold - plan.privacy.colluders, 1)
    noise = multiplier * step * grid_sensitivity(sensitivity, step, total.size) * np.sqrt(parts)
    sealed = replace(sealed, releases=(*sealed.releases, multiplier))
    return settled(plan, phase.take(plan, replace(state, sealed=sealed), from_grid(total, step), float(noise)))
