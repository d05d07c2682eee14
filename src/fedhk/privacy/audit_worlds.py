"""Two data sets of one site that differ in one row, and a server that asks for what tells them apart best.

Everything that a server may choose is chosen against the site: centres, scales, and where the one row lies. The other
rows are there to show a site that lets one row act on what it says of the others. They add nothing to what a right
release says of the one row, because sums cancel; but a scale, a weight of a view or a centre of the site's own making
moves them all at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedhk._typing import FloatArray
from fedhk.data.scaling import Reference
from fedhk.data.views import check_views
from fedhk.federation.messages import Message
from fedhk.federation.payloads import Arrays, Values, pack_parameters, pack_references
from fedhk.federation.sealed.catalogue import phase_named
from fedhk.federation.sealed.site import grid_step
from fedhk.federation.site import SiteState, client_step
from fedhk.model.parameters import Parameters
from fedhk.privacy.ledger import Ledger
from fedhk.privacy.mechanism import DifferentialPrivacy
from fedhk.privacy.sensitivity import grid_sensitivity

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


@dataclass(frozen=True)
class Worlds:
    """What is released of two data sets, before noise, and how to ask for it.

    Parameters
    ----------
    sites : pair of SiteState
        The site with the one row, and with another in its place or none; both know the server's scales.
    requests : tuple of Message
        What the server asks, one message per phase.
    directions : tuple of array
        Per phase, by what a released number is multiplied so that the sum of all is the log-likelihood ratio of
        Gaussian noise, up to a constant.
    distance : float
        How far apart the two data sets are, in standard deviations of the noise: mu of what is released.
    """

    sites: tuple[SiteState, SiteState]
    requests: tuple[Message, ...]
    directions: tuple[FloatArray, ...]
    distance: float

    def release(self, world: int) -> float:
        """Release once, with new noise and a new ledger; how much the result looks like the first data set."""
        site = replace(self.sites[world], ledger=Ledger(None, SITE))
        score = 0.0
        for request, direction in zip(self.requests, self.directions, strict=True):
            site, reply = client_step(site, request)
            score += float(reply.arrays["sum"] @ direction)
        return score


def worst_worlds(privacy: DifferentialPrivacy, phases: Sequence[str]) -> Worlds:
    """Of a number of pairs of data sets, the one that the phases' releases tell apart best."""
    return max(
        (_worlds(privacy, phases, first, second) for first, second in _pairs(privacy.neighbours == "replace")),
        key=lambda worlds: worlds.distance,
    )


def _pairs(replaced: bool) -> Iterator[tuple[FloatArray, FloatArray | None]]:
    """The one row, and what is in its place."""
    there = np.array([0.0, APART, APART])
    for times in TRIED:
        r = times * BEST_DISTANCE
        # a little in the middle too, so that no feature has the same sign on opposite sides
        both, one, other = np.array([r, 1e-6 * r, r]), np.array([r, 0.0, 0.0]), np.array([0.0, 0.0, r])
        if replaced:
            yield both, -both  # the same centre, pulled to opposite sides
            yield both, there + both  # two centres
            yield one, other  # one view against the other
            yield one, np.array([-r / 2, r * np.sqrt(0.75), 0.0])  # a third of a turn, for second moments
        else:
            yield both, None
            yield one, None
            yield other, None


def _worlds(
    privacy: DifferentialPrivacy, phases: Sequence[str], first: FloatArray, second: FloatArray | None
) -> Worlds:
    sites = tuple(_site(privacy, row) for row in (first, second))
    requests = [_request(phase, number) for number, phase in enumerate(phases)]
    directions, squared, prepared = [], 0.0, list(sites)
    for request in requests:
        phase = phase_named(request.kind, private=True)
        # a real release, so that sites are as they will be; its numbers are not looked at
        prepared = [client_step(site, request)[0] for site in prepared]
        sums = [phase.values(site, request, 1) for site in prepared]
        sensitivity = phase.sensitivity(request.values, prepared[0].parameters, privacy.neighbours)
        step = grid_step(sensitivity)
        stated = privacy.multiplier(request.kind, 1) * step * grid_sensitivity(sensitivity, step, sums[0].size)
        difference = sums[0] - sums[1]
        directions.append(difference * step / stated**2)
        squared += float(difference @ difference) / stated**2
    return Worlds((prepared[0], prepared[1]), tuple(map(_without_scales, requests)), tuple(directions), squared**0.5)


def _site(privacy: DifferentialPrivacy, row: FloatArray | None) -> SiteState:
    """A site with the common rows and, at the end, one row more."""
    torn = np.tile([0.0, 0.0, APART], (TORN_ROWS, 1))
    far = np.tile([-FAR, 0.0, -FAR], (FAR_ROWS, 1))
    rows = np.vstack([torn, far, *([] if row is None else [row])])
    views = check_views(dict(zip(NAMES, np.split(rows, np.cumsum(WIDTHS)[:-1], axis=1), strict=True)))
    return SiteState(SITE, views, privacy=privacy, ledger=Ledger(None, SITE))


def _request(phase: str, number: int) -> Message:
    """What the server says: as in a run, but with numbers of its own choice."""
    arrays, values = PHASES[phase]()
    return Message(phase, "*", number, arrays, values | {"sealed": True, "run": "audit", "rounds": 1})


def _scales() -> tuple[Arrays, Values]:
    """Model units that are the input's."""
    units = [
        Reference(False, np.zeros(w), np.ones(w), heat_coef="uniform", low=np.zeros(w), span=np.ones(w), share=1.0)
        for w in WIDTHS
    ]
    return pack_references(units, NAMES, [None] * len(NAMES))


def _without_scales(request: Message) -> Message:
    """The request to a site that knows the scales already."""
    arrays = {name: array for name, array in request.arrays.items() if name not in ("references", "scales")}
    return replace(request, arrays=arrays)


def _ranges() -> tuple[Arrays, Values]:
    return {}, {"names": list(NAMES), "widths": list(WIDTHS)}


def _scaled(arrays: Arrays, values: Values) -> tuple[Arrays, Values]:
    scales, views = _scales()
    return scales | arrays, views | values


def _directions() -> tuple[Arrays, Values]:
    return _scaled({}, {"radius": BEST_DISTANCE, "seed": 0})


def _cells() -> tuple[Arrays, Values]:
    # one axis, on which the rows that are tried are on different sides of the middle or at least of a cell's edge
    axis = np.array([1.0, 0.0, 0.5]) / np.sqrt(1.25)
    return _scaled({"axes": np.column_stack([np.zeros(3), axis]), "deviations": np.ones(1)}, {"bins": 16})


def _round() -> tuple[Arrays, Values]:
    centers = tuple(np.vstack([np.zeros(width), np.append(np.zeros(width - 1), APART)]) for width in WIDTHS)
    even = np.full(len(WIDTHS), 1 / len(WIDTHS))
    arrays, values = pack_parameters(
        Parameters(centers, even, HEAT_TIME, fuzzifier=1 + 1 / 16, view_exponent=2.0, view_shares=np.ones(len(WIDTHS)))
    )
    return _scaled(arrays, values)


PHASES = {"ranges": _ranges, "directions": _directions, "cells": _cells, "round": _round}
