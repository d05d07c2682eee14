"""Protocols, one file each: what a round sends, what sites reply, and how the server updates the parameters."""

from __future__ import annotations

from fedhk.federation.protocols.averaging import Averaging
from fedhk.federation.protocols.base import Protocol
from fedhk.federation.protocols.factors import FactorAveraging
from fedhk.federation.protocols.personalized import Personalized
from fedhk.federation.protocols.statistics import Statistics

__all__ = ["PROTOCOLS", "make_protocol"]

# Short forms of `protocol`.
PROTOCOLS: dict[str, Protocol] = {
    "auto": Statistics(basis="auto"),
    "statistics": Statistics(),
    "cores": Statistics(basis=True),
    "centers": Averaging(),
    "factors": FactorAveraging(),
    "personalized": Personalized(),
}


def make_protocol(given: str | Protocol) -> Protocol:
    """Return the protocol of this name, or the given object."""
    return PROTOCOLS[given] if isinstance(given, str) else given
