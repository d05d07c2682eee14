"""Ways to do a round: what goes to the sites, what they answer, what the server makes of it. One file each."""

from fedhk.federation.protocols.base import RoundProtocol
from fedhk.federation.protocols.centers import CentersProtocol
from fedhk.federation.protocols.cores import CoresProtocol
from fedhk.federation.protocols.statistics import StatisticsProtocol

__all__ = ["PROTOCOL_NAMES", "RoundProtocol", "protocol_named"]

_PROTOCOLS: dict[str, RoundProtocol] = {
    "statistics": StatisticsProtocol(),
    "centers": CentersProtocol(),
    "cores": CoresProtocol(),
}
PROTOCOL_NAMES = (*_PROTOCOLS, "factors")


def protocol_named(name: str) -> RoundProtocol:
    """The protocol of a name."""
    if name == "factors" and name not in _PROTOCOLS:
        from fedhk.federation.protocols.factors import FactorsProtocol  # noqa: PLC0415 - imports tensor algebra, a second

        _PROTOCOLS[name] = FactorsProtocol()
    return _PROTOCOLS[name]
