"""The guard of a site that is elsewhere: the one place that says what such a site lets pass, and under which policy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedhk.data.views import Views
from fedhk.errors import MessageError
from fedhk.federation.board import Board, Shared
from fedhk.federation.entries import Terms
from fedhk.federation.gate import SEALED, Guard, SiteEnd
from fedhk.federation.remote.greet import Greeting
from fedhk.federation.remote.policy import Policy
from fedhk.federation.sealed import SealedGuard, SiteNoise
from fedhk.federation.site import Site
from fedhk.privacy.ledger import Ledger
from fedhk.privacy.mechanism import DifferentialPrivacy


class PolicyGuard(Guard):
    """What a site with a policy lets pass; one guard is made for each message.

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
        """The phase that a message of this kind is of; whether the site takes part is decided in `admit`."""
        self._kind = kind
        phase = SealedGuard().phase(kind) if kind.startswith(SEALED) else Guard().phase(kind)
        return AdmittedEnd(phase.request_type, phase.reply_type, self._answer)

    def admit(self, site: Site, request: Any, entries: Sequence[Shared]) -> None:
        """Refuse what the terms of the run or the policy do not allow; then give the site its rows."""
        if isinstance(request, Greeting):
            site.views = self._read_views(None)
            return
        terms = enter_run(site, entries)
        self._policy.check(terms)
        privacy = read_budget(terms)
        self._chosen = self._choose_guard(site.name, terms, privacy)
        self._chosen.phase(self._kind)
        self._chosen.admit(site, request, entries)
        site.views = self._read_views(terms)
        n_rows = site.views.n_rows
        if privacy is not None and n_rows and privacy.delta >= 1.0 / n_rows:
            raise MessageError(f"delta={privacy.delta:g} is not below 1 over the number of its rows")

    def _choose_guard(self, site: str, terms: Terms, privacy: DifferentialPrivacy | None) -> Guard:
        """The guard for runs on these terms."""
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
    """The site's end of a phase, whose answer is known once the message is admitted."""

    request_type: Any
    reply_type: Any
    answer: Callable[[Site, Any], Any]


def enter_run(site: Site, entries: Sequence[Shared]) -> Terms:
    """Find the terms of the run that a message belongs to. A run with another name begins with an empty board.

    The terms of a run do not change on the way.
    """
    known = next(site.board.find(Terms), None)
    new = next((entry for entry in entries if isinstance(entry, Terms)), None)
    if new is None:
        if known is None:
            raise MessageError("asked before the terms of the run were published")
        return known
    if known is None or known.run != new.run:
        site.board, site.memory = Board(), Board()
    elif (known.privacy, known.secure) != (new.privacy, new.secure):
        raise MessageError("the terms of the run have changed; a run with others needs a new name")
    return new


def read_budget(terms: Terms) -> DifferentialPrivacy | None:
    """Read the privacy budget of a run; None where it adds no noise."""
    if terms.privacy is None:
        return None
    try:
        return DifferentialPrivacy(**terms.privacy)
    except (TypeError, ValueError) as error:
        raise MessageError(f"the run's privacy budget cannot be used: {str(error)[:200]}") from error
