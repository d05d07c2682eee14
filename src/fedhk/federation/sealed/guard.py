"""The guard of a site in a run with noise or masks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedhk.errors import MessageError, Rule
from fedhk.federation.board import RowEntry, Shared
from fedhk.federation.entries import Terms
from fedhk.federation.gate import SEALED, Guard, SiteEnd
from fedhk.federation.phases.base import SumPhase, phase_named
from fedhk.federation.phases.deliver import Deliver, DeliverReply, DeliverRequest
from fedhk.federation.sealed.masks import MaskedSite, SiteMasks
from fedhk.federation.sealed.messages import Header, Reply, request_type
from fedhk.federation.sealed.noise import LOG, SiteNoise, SiteRounding, without_rows
from fedhk.federation.sealed.units import LengthOfSum
from fedhk.federation.site import Site
from fedhk.privacy.mechanism import LENGTH_OF
from fedhk.privacy.secure_site import SecureSite

# The two phases that a site answers in the open in runs with noise or masks: they reveal nothing of rows.
OPEN_PHASES = ("schema", "deliver")

# Refusals of a site: one constant text per rule.
SEALED_ONLY = Rule("the server asks for what this site only gives with noise or masks")
NO_TERMS = Rule("asked before the terms of the run were published")
SUMS_ONLY = Rule("the server asks for what is no sum, this site gives sums only")
NOT_SAID = Rule("the server asks for a sum and does not say which")
OTHER_TERMS = Rule("the terms of the run have changed; a run with others needs a new name")
MAPPED_ROWS = Rule("what a row can change is bounded for rows as they are, not for rows that are mapped")
OTHER_RUN = Rule("the server speaks of another run than the one that this site takes part in")


def sum_named(name: str) -> Any:
    """Find the site's end of a sealed sum by its kind: the class of a phase, or the length of its vector."""
    phase = phase_named(name.removeprefix(LENGTH_OF))
    if not issubclass(phase, SumPhase):
        raise MessageError(SUMS_ONLY)
    return LengthOfSum(phase) if name.startswith(LENGTH_OF) else phase


@dataclass(frozen=True)
class SealedEnd:
    """A site's end of a sealed phase."""

    phase: Any  # the class of the phase, or the length of its vector
    rounding: SiteRounding
    masks: SiteMasks

    reply_type: Any = Reply

    @property
    def request_type(self) -> Any:
        """Type of the request, for the codec."""
        return request_type(self.phase)

    def answer(self, site: Site, request: tuple[Header, Any]) -> Reply:
        """Compute the site's term of one sum, or its part of the agreement on masks."""
        header, inner = request

        def release() -> NDArray[np.int64]:
            if inner is None:
                raise MessageError(NOT_SAID)
            return self.rounding.release(site, self.phase, header, inner, self.masks)

        return self.masks.answer(site, header.masks, release)


@dataclass(frozen=True)
class QuietDelivery:
    """Delivers the model with a reply that is the same whether or not the site could use it.

    The server chooses the model, the scales and how the site's own model is made. Numbers that fail on one row only
    would tell by a refusal whether that row is there.
    """

    request_type: Any = Deliver.request_type
    reply_type: Any = Deliver.reply_type

    def answer(self, site: Site, request: DeliverRequest) -> DeliverReply:
        """Refuse what is wrong whatever the rows are; log what goes wrong because of the rows."""
        Deliver.answer(without_rows(site), request)
        try:
            Deliver.answer(site, request)
        except Exception:
            LOG.exception("site %r has no model of its own from this run: its rows do not fit", site.name)
        return DeliverReply()


@dataclass(frozen=True)
class SealedGuard(Guard):
    """Allows sealed sums only, and two phases that tell nothing of rows: which views there are, and the delivery.

    Parameters
    ----------
    noise : SiteNoise or None
        The budget and the ledger; None where the run adds no noise.
    masks : SecureSite or None
        The site's part in masked sums; None where the run has no masks.
    """

    noise: SiteNoise | None = None
    masks: SecureSite | None = None

    def phase(self, kind: str) -> SiteEnd:
        if kind == Deliver.name:
            return QuietDelivery()
        if kind in OPEN_PHASES:
            return phase_named(kind)
        if not kind.startswith(SEALED):
            raise MessageError(SEALED_ONLY)
        phase = sum_named(kind.removeprefix(SEALED))
        masks = SiteMasks() if self.masks is None else MaskedSite(self.masks)
        return SealedEnd(phase, self.noise or SiteRounding(), masks)

    def admit(self, site: Site, request: Any, entries: Sequence[Shared]) -> None:
        known = [*site.board.find(Terms), *(entry for entry in entries if isinstance(entry, Terms))]
        if not known:
            raise MessageError(NO_TERMS)
        for terms in known:
            self._check_terms(terms, known[0])
        mapped = [*site.board.find(RowEntry), *(entry for entry in entries if isinstance(entry, RowEntry))]
        if self.noise is not None and mapped and not isinstance(request, DeliverRequest):  # no sum comes after a map
            raise MessageError(MAPPED_ROWS)
        if isinstance(request, DeliverRequest) and request.report:
            raise MessageError(SEALED_ONLY)

    def _check_terms(self, terms: Terms, first: Terms) -> None:
        """Refuse a second run, which would have a budget of its own, and terms other than those of the site."""
        if not terms.run or terms.run != first.run:
            raise MessageError(OTHER_RUN)
        own: Any = None if self.noise is None else self.noise.privacy.describe()
        if (terms.privacy, terms.secure) != (own, self.masks is not None):
            raise MessageError(OTHER_TERMS)
