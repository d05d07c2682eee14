"""What a sum over sites is, and how a sealed run goes on to its rounds.

A phase is an object without state. What one row can change is stated beside what is sent.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from fedhk._typing import FloatArray
from fedhk.data.moments import Moments
from fedhk.errors import MessageError
from fedhk.federation.messages import Message
from fedhk.federation.payloads import Arrays, Values
from fedhk.federation.sealed.state import Sealed
from fedhk.model.descent import Progress
from fedhk.model.joint import split_joint
from fedhk.model.parameters import Parameters
from fedhk.model.preparation import references_from_moments
from fedhk.privacy.fixed_point import LARGEST
from fedhk.privacy.sensitivity import Neighbours

if TYPE_CHECKING:
    from fedhk.federation.site import SiteState
    from fedhk.federation.state import Plan, ServerState

# What one row may add to a number of a sum, on average over rows, before the grid overflows.
ROOM_PER_ROW = 1024.0

# "minmax" coefficients of values all over the range are a half on average, and the unit is the root of that.
MINMAX_UNIT = float(np.sqrt(0.5))


class SumPhase(ABC):
    """One sum over sites."""

    step: float | None = None
    """Numbers are whole multiples of this, where no noise is added; None is as fine as the number of rows allows."""

    def grid(self, state: ServerState) -> float:
        """Of what the numbers are whole multiples, where no noise is added."""
        return fine_step(state) if self.step is None else self.step

    def tell(self, plan: Plan, state: ServerState) -> tuple[Arrays, Values]:  # noqa: ARG002
        """What the server says with the request."""
        return {}, {}

    def hear(self, site: SiteState, request: Message) -> SiteState:  # noqa: ARG002
        """The site with what the server told."""
        return site

    @abstractmethod
    def size(self, plan: Plan, state: ServerState) -> int:
        """How many numbers are sent."""

    @abstractmethod
    def values(self, site: SiteState, request: Message, workers: int) -> FloatArray:
        """What the site adds to the sum."""

    def sensitivity(self, told: Values, parameters: Parameters | None, neighbours: Neighbours) -> float:  # noqa: ARG002
        """How far, at most, the values move when one row is another or is not there.

        Parameters
        ----------
        told : dict
            What the server says with the request.
        parameters : Parameters or None
            The parameters of the round.
        neighbours : str
            What one row more or less means.
        """
        raise MessageError("this sum must not leave a site with privacy on")

    @abstractmethod
    def take(self, plan: Plan, state: ServerState, total: FloatArray, noise: float) -> ServerState:
        """What the server makes of the sum, whose numbers have noise of the given standard deviation."""


def held_sealed(state: ServerState) -> Sealed:
    """The sealed part of the server's state."""
    if state.sealed is None:
        raise MessageError(f"the server is in phase {state.phase!r} of a sealed run that was not begun")
    return state.sealed


def schema_widths(state: ServerState) -> list[int]:
    """Features per view, before there are references."""
    return [len(view.mean) for view in state.moments]


def site_widths(request: Message) -> list[int]:
    """Features per view, as the server tells them before there are references."""
    return [int(width) for width in request.values["widths"]]


def most_of_site(n_sites: int) -> int:
    """Largest whole number that a site may put into a sum."""
    return LARGEST // (2 * max(n_sites, 1))


def fine_step(state: ServerState) -> float:
    """The finest grid, a power of two, on which the sums of so many rows certainly have room."""
    room = ROOM_PER_ROW * max(state.rows, 1.0) / most_of_site(len(held_sealed(state).sites))
    return float(2.0 ** math.ceil(math.log2(room)))


def bounded(plan: Plan, state: ServerState) -> ServerState:
    """The state once bounds are known: with noise they are all that scales features, else moments are asked for."""
    if plan.privacy is None:
        return replace(state, phase="moments")
    sealed = held_sealed(state)
    widths = schema_widths(state)
    low, high = split_joint(known_bounds(sealed.low), widths), split_joint(known_bounds(sealed.high), widths)
    moments = tuple(_of_bounds(a, b) for a, b in zip(low, high, strict=True))
    references = references_from_moments(moments, state.names, plan.settings.scaling, plan.settings.heat_coef)
    if plan.settings.heat_coef == "minmax":
        references = tuple(reference.rescaled(MINMAX_UNIT) for reference in references)
    return referenced(plan, replace(state, moments=moments, references=references, informed=frozenset()))


def known_bounds(values: FloatArray | None) -> FloatArray:
    """One end of all ranges, which must be known by now."""
    if values is None:
        raise MessageError("the server has no bounds yet")
    return values


def _of_bounds(low: FloatArray, high: FloatArray) -> Moments:
    """Moments as if values were all over the range alike."""
    one = np.ones_like(low)
    return Moments(1.0, 1.0, one, (low + high) / 2, np.square(high - low) / 12, low, high)


def referenced(plan: Plan, state: ServerState) -> ServerState:
    """The state once references are final: given centres are the start, or directions and cells give one.

    Where rows are embedded, what comes next is the way to anchors.
    """
    if plan.diffusion is not None:
        return replace(state, phase="anchors")
    if isinstance(plan.settings.init, str):
        return replace(state, phase="directions")
    start = plan.settings.given_start(state.references, state.names)
    return replace(state, phase="round", progress=Progress(start))
