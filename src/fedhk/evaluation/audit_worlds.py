"""Two data sets of one site that differ in one row, and a server that asks for what tells them apart best.

Everything that a server may choose is chosen against the site: centres, scales, and where the one row lies. The other
rows are there to show a site that lets one row act on what it says of the others. They add nothing to what a right
release says of the one row, because sums cancel; but a scale, a weight of a view or a centre of the site's own making
moves them all at once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedhk._typing import FloatArray
from fedhk.data.scaling import Reference
from fedhk.data.views import check_views
from fedhk.federation.board import Shared
from fedhk.federation.codec import unpack
from fedhk.federation.entries import References, Schema, Terms
from fedhk.federation.gate import SEALED, answer_message, write_request
from fedhk.federation.messages import Message
from fedhk.federation.phases.base import Nothing, SumPhase
from fedhk.federation.phases.scales import (
    FARTHEST,
    Lengths,
    Means,
    MeansRequest,
    Ranges,
    RangesRequest,
    Spreads,
    SpreadsRequest,
)
from fedhk.federation.phases.sum_rounds import NoisyRounds, noisy_request
from fedhk.federation.phases.sum_start import MIDDLE_SHARE, Cells, CellsRequest, Directions, DirectionsRequest
from fedhk.federation.sealed import SealedGuard, SiteNoise
from fedhk.federation.sealed.messages import Header, NoisySum, Reply, request_type
from fedhk.federation.sealed.noise import noise_step
from fedhk.federation.site import Site
from fedhk.model.parameters import Parameters
from fedhk.privacy.ledger import Ledger
from fedhk.privacy.mechanism import DifferentialPrivacy
from fedhk.privacy.sensitivity import Neighbours, grid_sensitivity
from fedhk.starts.cells import Landmarks

SITE, NAMES, WIDTHS = "audited", ("first", "second"), (2, 1)

# The kernel is that of a default run. Its pull r exp(-t r^2) is strongest at this distance.
HEAT_TIME = 0.3
BEST_DISTANCE = (2 * HEAT_TIME) ** -0.5

# One centre is at the origin, the other so far away that a row near the first does not belong to it at all.
APART = 12.0

# Distances at which the one row is tried, in units of the best one. The larger ones are for code that looks at ranges.
TRIED = (0.25, 0.5, 0.7, 0.85, 1.0, 1.2, 1.5, 3.0, 30.0)

# Rows that two centres hold half each, one in either view; and rows that a centre hardly reaches, but for a small move.
TORN_ROWS, FAR_ROWS, FAR = 24, 24, 3.5


PHASES: dict[str, type[SumPhase[Any]]] = {
    "ranges": Ranges,
    "means": Means,
    "lengths": Lengths,
    "spreads": Spreads,
    "directions": Directions,
    "cells": Cells,
    "round": NoisyRounds,
}


@dataclass(frozen=True)
class Worlds:
    """Two data sets that differ in one row: what is released of each before noise, and the requests for it."""

    privacy: DifferentialPrivacy
    # with the one row, and with another in its place or none; both know the server's scales
    sites: tuple[Site, Site]
    # what the server asks, one message per phase
    messages: tuple[Message, ...]
    # Per phase, by what a released number is multiplied so that the sum of all is the log-likelihood ratio of Gaussian
    # noise, up to a constant.
    directions: tuple[FloatArray, ...]
    # between the two data sets, in standard deviations of the noise: mu of what is released
    distance: float

    def release(self, world: int) -> float:
        """Release once, with new noise and a new ledger; score how much the result looks like the first data set."""
        site, guard = self.sites[world], _guard(self.privacy)
        score = 0.0
        for message, direction in zip(self.messages, self.directions, strict=True):
            site, reply = answer_message(site, guard, message)
            numbers: Any = unpack(reply.values, reply.arrays, Reply)  # type: ignore[arg-type]
            score += float(numbers.values @ direction)
        return score


def worst_worlds(privacy: DifferentialPrivacy, phases: Sequence[str]) -> Worlds:
    """Find the pair of data sets that the phases' releases tell apart best."""
    pairs = _pairs(privacy.neighbours == "replace")
    return max((_worlds(privacy, phases, *pair) for pair in pairs), key=lambda worlds: worlds.distance)


def _pairs(replaced: bool) -> Iterator[tuple[FloatArray, FloatArray | None]]:
    """Return pairs of the one row and what takes its place."""
    there = np.array([0.0, APART, APART])
    for times in TRIED:
        r = times * BEST_DISTANCE
        # a little in the middle too, so that no feature has the same sign on opposite sides
        both, one, other = np.array([r, 1e-6 * r, r]), np.array([r, 0.0, 0.0]), np.array([0.0, 0.0, r])
        if replaced:
            yield both, -both  # the same centre, pulled to opposite sides
            yield both, there + both  # two centres
            yield one, other  # one view against the other
            # second moments: rows at a right angle, with the constant that each has
            yield one, r * np.array([-(MIDDLE_SHARE**2), math.sqrt(1 - MIDDLE_SHARE**4), 0.0])
            yield FARTHEST * one, -one  # means: on opposite sides, and of other lengths
            yield both, both * 2  # other lengths in both views
            yield r * np.array([1.0, 0.0, 1.0]), r * np.array([0.0, 1.0, 0.0])  # squares: other features of each view
        else:
            yield both, None
            yield one, None
            yield other, None


def _worlds(
    privacy: DifferentialPrivacy, phases: Sequence[str], first: FloatArray, second: FloatArray | None
) -> Worlds:
    sites = [_site(privacy, row) for row in (first, second)]
    messages, directions, squared = [], [], 0.0
    for number, name in enumerate(phases):
        phase, request = PHASES[name], _request(name, privacy.neighbours)
        messages.append(_message(phase, number, request))
        sums = [phase.vector(site, request) for site in sites]
        sensitivity = phase.sensitivity(request, sums[0].size, privacy.neighbours)
        step = noise_step(sensitivity)
        stated = privacy.multiplier(name, 1) * step * grid_sensitivity(sensitivity, step, sums[0].size)
        difference = sums[0] - sums[1]
        directions.append(difference * step / stated**2)
        squared += float(difference @ difference) / stated**2
    return Worlds(privacy, (sites[0], sites[1]), tuple(messages), tuple(directions), squared**0.5)


def _guard(privacy: DifferentialPrivacy) -> SealedGuard:
    return SealedGuard(SiteNoise(privacy, Ledger(None, SITE)))


def _site(privacy: DifferentialPrivacy, row: FloatArray | None) -> Site:
    """Make a site with the common rows and one more row at the end; it knows the run and the server's scales."""
    torn = np.tile([0.0, 0.0, APART], (TORN_ROWS, 1))
    far = np.tile([-FAR, 0.0, -FAR], (FAR_ROWS, 1))
    rows = np.vstack([torn, far, *([] if row is None else [row])])
    views = check_views(dict(zip(NAMES, np.split(rows, np.cumsum(WIDTHS)[:-1], axis=1), strict=True)))
    # model units that are the input's
    units = [
        Reference(False, np.zeros(w), np.ones(w), heat_coef="uniform", low=np.zeros(w), span=np.ones(w), share=1.0)
        for w in WIDTHS
    ]
    # published as in a run, so that the site's own checks have passed
    terms: Any = Terms("audit", privacy=privacy.describe())
    published = terms, Schema(NAMES, (None,) * len(NAMES)), References(tuple(units))
    first = _message(Cells, 0, _request("cells", privacy.neighbours), *published)
    return answer_message(Site(SITE, views), _guard(privacy), first)[0]


def _message(phase: type[SumPhase[Any]], number: int, request: Any, *entries: Shared) -> Message:
    """Make the server's message: as in a run, but with numbers of its own choice."""
    asked = Header(None, NoisySum(number, 1)), request
    published = {type(entry).__name__: entry for entry in entries}
    return write_request(SEALED + phase.name, number, asked, request_type(phase), published)


def _request(phase: str, neighbours: Neighbours) -> Any:
    """Make the server's request in a phase, chosen against the site."""
    plain = {
        "ranges": RangesRequest(WIDTHS),
        "means": MeansRequest(BEST_DISTANCE),
        "lengths": Nothing(),
        "spreads": SpreadsRequest(WIDTHS, BEST_DISTANCE),
        "directions": DirectionsRequest(BEST_DISTANCE, 0),
    }
    if phase in plain:
        return plain[phase]
    if phase == "cells":
        # one axis, on which the rows that are tried are on different sides of the middle or at least of a cell's edge
        axis = np.array([[1.0], [0.0], [0.5]]) / np.sqrt(1.25)
        return CellsRequest(Landmarks(axis, np.linspace(-2.5, 2.5, 16)[:, None]))
    centers = tuple(np.vstack([np.zeros(width), np.append(np.zeros(width - 1), APART)]) for width in WIDTHS)
    even, ones = np.full(len(WIDTHS), 1 / len(WIDTHS)), np.ones(len(WIDTHS))
    return noisy_request(Parameters(centers, even, HEAT_TIME, 1 + 1 / 16, 2.0, ones), neighbours)
