"""Ways to do a round: what goes to the sites, what they answer, what the server makes of it. One file each."""

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
    """The protocol of a name, or the one that was given."""
    return PROTOCOLS[given] if isinstance(given, str) else given
