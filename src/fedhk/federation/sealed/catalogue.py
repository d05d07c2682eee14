"""Which sums a sealed run may ask for."""

from __future__ import annotations

from fedhk.errors import MessageError
from fedhk.federation.diffusion.sealed import Anchors, Products
from fedhk.federation.sealed.phases import SumPhase
from fedhk.federation.sealed.rounds import Finish, NoisyRound, PlainRound
from fedhk.federation.sealed.scales import Energy, MomentsPhase, Ranges
from fedhk.federation.sealed.start import Cells, Directions

PRIVATE: dict[str, SumPhase] = {
    "ranges": Ranges(),
    "directions": Directions(),
    "cells": Cells(),
    "round": NoisyRound(),
}
OPEN: dict[str, SumPhase] = PRIVATE | {
    "moments": MomentsPhase(),
    "energy": Energy(),
    "anchors": Anchors(),
    "diffuse": Products(),
    "round": PlainRound(),
    "finish": Finish(),
}


def phase_named(name: str, *, private: bool) -> SumPhase:
    """The phase; with noise only those whose sums are protected."""
    phases = PRIVATE if private else OPEN
    if name not in phases:
        raise MessageError(f"asked for {name!r}, which does not leave a site in this run; it gives {sorted(phases)}")
    return phases[name]
