"""The guard of a site that is elsewhere: the one place that says what such a site lets pass, and under which policy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fedhk.data.views import Views
from fedhk.errors import MessageError
from fedhk.federation.board import Board, Shared
from fedhk.federation.entries import Terms
from fedhk.federation.gate import Guard
from fedhk.federation.remote.greet import Greeting
from fedhk.federation.remote.policy import Policy
from fedhk.federation.site import Site


class PolicyGuard(Guard):
    """What a site with a policy lets pass. Rows are read once a message is admitted, and not before.

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

    def admit(self, site: Site, request: Any, entries: Sequence[Shared]) -> None:
        """Refuse what the policy does not allow; then give the site its rows."""
        if isinstance(request, Greeting):
            site.views = self._read_views(None)
            return
        terms = enter_run(site, entries)
        self._policy.check(terms)
        site.views = self._read_views(terms)
        super().admit(site, request, entries)


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
