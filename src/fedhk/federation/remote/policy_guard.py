"""The guard of a site on another machine: it checks every message against the policy of the site's operator."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from fedhk.data.views import Views
from fedhk.errors import MessageError, Rule
from fedhk.federation.board import Board, Shared
from fedhk.federation.entries import Terms
from fedhk.federation.gate import SEALED, Guard, SiteEnd
from fedhk.federation.messages import MAX_NAME
from fedhk.federation.phases.base import phase_named
from fedhk.federation.phases.together import AND
from fedhk.federation.remote.greet import Greeting
from fedhk.federation.remote.policy import Policy
from fedhk.federation.sealed import SealedGuard, SiteNoise
from fedhk.federation.sealed.guard import NO_TERMS, OTHER_TERMS
from fedhk.federation.site import Site
from fedhk.privacy.ledger import Ledger
from fedhk.privacy.mechanism import LENGTH_OF, DifferentialPrivacy

LOG = logging.getLogger("fedhk.site")

# Refusals of a site: one constant text per rule.
BAD_BUDGET = Rule("the run's privacy budget cannot be used")
BAD_NAME = Rule(f"the name of the run is not 1 to {MAX_NAME} printable characters")
FEW_ROWS = Rule("this site has too few rows for a run in the open; it takes part with masks or noise")


class PolicyGuard(Guard):
    """Allows what the site's policy allows; one guard is made for each message.

    The terms of the run come with its first message. They say whether sums are sealed, the policy says whether that is
    enough. Rows are read once a message is admitted, and not before.

    Parameters
    ----------
    policy : Policy
        What the site demands of any run.
    read_views : callable
        Reads the site's rows, in the order that the terms of a run ask for.
    ledger : Path
        File of the site's ledger, in which all runs write.
    """

    def __init__(self, policy: Policy, read_views: Callable[[Terms | None], Views], ledger: Path) -> None:
        self._policy = policy
        self._read_views = read_views
        self._ledger = ledger
        self._kind = ""
        self._chosen = Guard()

    def phase(self, kind: str) -> SiteEnd:
        """Return the phase of messages of this kind; `admit` decides whether the site takes part."""
        self._kind = kind
        phase = SealedGuard().phase(kind) if kind.startswith(SEALED) else Guard().phase(kind)
        return AdmittedEnd(phase.request_type, phase.reply_type, self._answer)

    def admit(self, site: Site, request: Any, entries: Sequence[Shared]) -> None:
        """Refuse what the terms of the run or the policy do not allow; then load the site's rows."""
        if isinstance(request, Greeting):
            site.views = self._read_views(None)
            return
        for name in self._kind.removeprefix(SEALED).split(AND):
            self._policy.check_phase(phase_named(name.removeprefix(LENGTH_OF)))
        terms = _enter_run(site, entries)
        privacy = _read_budget(terms)
        self._policy.check(terms, privacy)
        self._chosen = self._choose_guard(site.name, terms, privacy)
        self._chosen.phase(self._kind)
        self._chosen.admit(site, request, entries)
        site.views, site.least_group = self._read_views(terms), self._policy.least_group
        if privacy is None and not terms.secure:
            site.views = _hide_small_columns(site.views, self._policy.least_rows)
        elif privacy is not None and site.views.n_rows * privacy.delta >= 1:  # said here only: it tells how many rows
            LOG.warning("delta=%g of the run is not below 1 over the rows of site %r", privacy.delta, site.name)

    def _choose_guard(self, site: str, terms: Terms, privacy: DifferentialPrivacy | None) -> Guard:
        """Return the guard for runs on these terms."""
        if privacy is None and not terms.secure:
            return Guard()
        noise = None
        if privacy is not None:
            noise = SiteNoise(privacy, Ledger(self._ledger, site))
            self._policy.check_budget(privacy, noise.ledger, terms.run)
        return SealedGuard(noise, self._policy.make_secure_site(site) if terms.secure else None)

    def _answer(self, site: Site, request: Any) -> Any:
        return self._chosen.phase(self._kind).answer(site, request)


@dataclass(frozen=True)
class AdmittedEnd:
    """The site's end of a phase, bound to the guard that admitted the message."""

    request_type: Any
    reply_type: Any
    answer: Callable[[Site, Any], Any]


def _enter_run(site: Site, entries: Sequence[Shared]) -> Terms:
    """Find the terms of the run that a message belongs to. A run with another name begins with an empty board.

    The terms of a run do not change on the way.
    """
    known = next(site.board.find(Terms), None)
    new = next((entry for entry in entries if isinstance(entry, Terms)), None)
    if new is not None and (not 0 < len(new.run) <= MAX_NAME or not new.run.isprintable()):
        raise MessageError(BAD_NAME)
    if new is None:
        if known is None:
            raise MessageError(NO_TERMS)
        return known
    if known is None or known.run != new.run:
        site.board, site.memory = Board(), Board()
    elif replace(known, columns={}) != replace(new, columns={}):
        raise MessageError(OTHER_TERMS)
    return new


def _read_budget(terms: Terms) -> DifferentialPrivacy | None:
    """Read the privacy budget of a run; None where it adds no noise."""
    if terms.privacy is None:
        return None
    try:
        return DifferentialPrivacy(**terms.privacy)
    except (TypeError, ValueError) as error:
        LOG.warning("the run's privacy budget cannot be used: %s", error)
        raise MessageError(BAD_BUDGET) from error


def read_public_bounds(terms: Terms) -> tuple[Any, ...]:
    """Read the bounds of features that a run with noise was given; () where it adds none, or finds them itself."""
    privacy = _read_budget(terms)
    return () if privacy is None or not privacy.public else (privacy.bounds,)


def _hide_small_columns(views: Views, least: int) -> Views:
    """Remove the values of columns that have fewer than `least`: sums over so few rows would reveal them."""
    if 0 < views.n_rows < least:
        raise MessageError(FEW_ROWS)
    tables = list(views.tables)
    for view, table in enumerate(tables):
        if table is None or sp.issparse(table) or not views.missing[view]:
            continue
        few = (~np.isnan(table)).sum(axis=0) < least
        if few.any():
            tables[view] = np.where(few, np.nan, table).astype(table.dtype)
    return replace(views, tables=tuple(tables))
