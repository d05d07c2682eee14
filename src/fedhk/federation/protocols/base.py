"""What a protocol is: how parameters go to the sites, what they answer, and what the server makes of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fedhk.errors import MessageError
from fedhk.federation.messages import Message
from fedhk.federation.payloads import Arrays, Values, pack_parameters, unpack_parameters
from fedhk.model.parameters import Parameters
from fedhk.model.rows import Rows

if TYPE_CHECKING:
    from fedhk.federation.site import SiteState
    from fedhk.federation.state import Plan, ServerState


class RoundProtocol(ABC):
    """One way to do a round. It keeps no state of its own: the server's and the sites' states hold everything."""

    def begin(self, plan: Plan, state: ServerState, rows: Rows | None) -> ServerState:  # noqa: ARG002
        """The state once there is a start; `rows` are the candidates of the sites, where they were asked for some."""
        return state

    def tell(self, plan: Plan, state: ServerState, *, holds: bool) -> tuple[Arrays, Values]:  # noqa: ARG002
        """The parameters, for a site that holds what the protocol sends once, or does not."""
        return pack_parameters(state.parameters, state.precision)

    def hear(self, site: SiteState, request: Message) -> SiteState:
        """The site with the parameters that the server told."""
        return replace(site, parameters=unpack_parameters(request, held_rows(site).widths))

    @abstractmethod
    def answer(self, site: SiteState, request: Message, workers: int) -> tuple[SiteState, Arrays, Values]:
        """What the site says in a round."""

    @abstractmethod
    def read(self, plan: Plan, state: ServerState, reply: Message) -> Any:
        """A site's answer, checked."""

    @abstractmethod
    def combine(self, plan: Plan, state: ServerState, answers: Sequence[Any]) -> tuple[ServerState, Parameters, float]:
        """Better parameters from the answers, and the objective at the old ones; the state may change its basis."""


def held_rows(site: SiteState) -> Rows:
    """The site's rows as rounds see them: in model units or, where the server has told an embedding, embedded."""
    if site.rows is None:
        raise MessageError("asked for a round before the references came", site.name)
    return site.rows if site.stage is None or site.stage.embedded is None else site.stage.embedded


def held_parameters(site: SiteState) -> Parameters:
    """The parameters that the server told last."""
    if site.parameters is None:
        raise MessageError("asked for a round before parameters came", site.name)
    return site.parameters
