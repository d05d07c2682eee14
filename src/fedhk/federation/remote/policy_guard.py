"""The guard of a site on another machine: it checks every message against the policy of the site's operator."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from fedhk._text import LONGEST_NAME, is_name
from fedhk.data.views import Views
from fedhk.errors import MessageError, Rule
from fedhk.federation.board import Board, Shared
from fedhk.federation.entries import EarlierPast, OwnPast, Question, Terms
from fedhk.federation.gate import SEALED, Guard, SiteEnd
from fedhk.federation.phases.base import phase_named
from fedhk.federation.phases.kept_embedding import OwnEmbedding
from fedhk.federation.phases.together import AND
from fedhk.federation.placed import PlacedSite
from fedhk.federation.remote.greet import Greeting
from fedhk.federation.remote.policy import NO_QUESTION, Policy
from fedhk.federation.remote.questions import QuestionRows, check_outcomes
from fedhk.federation.sealed import SealedGuard, SiteNoise
from fedhk.federation.sealed.guard import NO_TERMS, OTHER_TERMS
from fedhk.federation.site import Site
from fedhk.privacy.ledger import Ledger
from fedhk.privacy.mechanism import AFTER, LENGTH_OF, DifferentialPrivacy

LOG = logging.getLogger("fedhk.site")

# Refusals of a site: one constant text per rule.
BAD_BUDGET = Rule("the run's privacy budget cannot be used")
BAD_NAME = Rule(f"the name of the run is not 1 to {LONGEST_NAME} printable characters")
OTHER_NUMBER = Rule("the question is of more or fewer clusters than the model has")
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
    questions : QuestionRows or None
        The rows that questions after a fit read; None where the site answers none.
    """

    def __init__(
        self,
        policy: Policy,
        read_views: Callable[[Terms | None], Views],
        ledger: Path,
        questions: QuestionRows | None = None,
    ) -> None:
        self._policy = policy
        self._read_views = read_views
        self._ledger = ledger
        self._questions = questions
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
            if self._questions is not None and request.held_out and self._policy.questions:
                site.views = self._questions.introduce()
            else:
                site.views = self._read_views(None)
            return
        phases = [phase_named(name) for name in _split_kind(self._kind)]
        for phase in phases:
            self._policy.check_phase(phase)
        terms = _enter_run(site, entries)
        privacy, is_question = _read_budget(terms), asks_question(self._kind)
        is_open = privacy is None and not terms.secure
        self._policy.check(terms, privacy, question=is_question)
        question = _find_question(site, entries) if is_question else None
        if question is not None:
            for phase in phases:
                self._policy.check_question(phase, question.kind, is_open=is_open)
        self._chosen = self._choose_guard(site.name, terms, privacy)
        self._chosen.phase(self._kind)
        self._chosen.admit(site, request, entries)
        if question is not None:
            self._place(site, terms, question, request, with_noise=privacy is not None)
        else:
            site.views, site.least_group = self._read_views(terms), self._policy.least_group
        if is_open:
            site.views = _hide_small_columns(site.views, self._policy.least_rows)
        elif privacy is not None and site.views.n_rows * privacy.delta >= 1:  # said here only: it tells how many rows
            LOG.warning("delta=%g of the run is not below 1 over the rows of site %r", privacy.delta, site.name)

    def _place(self, site: Site, terms: Terms, question: Question, request: Any, *, with_noise: bool) -> None:
        """Load the rows that a question may read, and the model that places them in clusters."""
        check_outcomes(question)
        if self._questions is None or not isinstance(site, PlacedSite):
            raise MessageError(NO_QUESTION)
        self._questions.place(site, terms, question, with_noise=with_noise)
        if not with_noise and not terms.secure:
            site.least_rows = self._policy.least_rows
        site.masked = terms.secure
        clusters = site.model.parameters.n_clusters
        for part in request if isinstance(request, tuple) else (request,):
            if getattr(part, "n_clusters", clusters) != clusters:
                raise MessageError(OTHER_NUMBER)

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


def asks_question(kind: str) -> bool:
    """Tell whether messages of this kind belong to a question after a fit."""
    return any(name.startswith(AFTER) for name in _split_kind(kind))


def _split_kind(kind: str) -> list[str]:
    """Return the names of the phases that messages of a kind belong to, sealed or not."""
    return [name.removeprefix(LENGTH_OF) for name in kind.removeprefix(SEALED).split(AND)]


def _find_question(site: Site, entries: Sequence[Shared]) -> Question:
    """Find what is asked: it comes with the first message."""
    found = [*(entry for entry in entries if isinstance(entry, Question)), *site.board.find(Question)]
    if not found:
        raise MessageError(NO_TERMS)
    return found[0]


def _enter_run(site: Site, entries: Sequence[Shared]) -> Terms:
    """Find the terms of the run that a message belongs to. A run with another name begins with an empty board.

    Of the run before, a site remembers the means of its rows by cluster, with which an update compares new rows, and
    the embedding of rows, which it need not be sent again.

    The terms of a run do not change on the way.
    """
    known = next(site.board.find(Terms), None)
    new = next((entry for entry in entries if isinstance(entry, Terms)), None)
    if new is not None and not is_name(new.run):
        raise MessageError(BAD_NAME)
    if new is None:
        if known is None:
            raise MessageError(NO_TERMS)
        return known
    if known is None or known.run != new.run:
        past = [own.past for own in site.memory.find(OwnPast)] or [old.past for old in site.memory.find(EarlierPast)]
        site.board, site.memory = Board(), Board().put(*map(EarlierPast, past), *site.memory.find(OwnEmbedding))
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
