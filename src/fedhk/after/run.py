"""Phases after a run: a fitted model and the rows of its sites are asked further questions, by sums over rows.

The way is that of a fit: a list of phases over an engine, in the open, under masks, or with noise that a ledger writes
down. A site has what it has after a fit: its rows and the model that places them. Its labels never leave it. Sites are
in this process, or elsewhere behind an engine: then the gate and the policy of each decide what it answers.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from sklearn.utils.validation import check_is_fitted

from fedhk._records import Records
from fedhk._text import listed
from fedhk._typing import FloatArray
from fedhk.after.tables import PrintedTable
from fedhk.data.clients import check_clients, fit_site, name_sites
from fedhk.data.levels import base_name
from fedhk.data.views import Columns, Views, is_tensor, is_view_collection
from fedhk.errors import DataError
from fedhk.estimators.efkmvc import are_sites
from fedhk.estimators.sealing import (
    add_budgets,
    announce,
    find_total_spent,
    list_releases,
    make_guards,
    make_question_terms,
)
from fedhk.federation.board import Board, Shared
from fedhk.federation.engines.base import Engine, RemoteEngine
from fedhk.federation.engines.inprocess import InProcessEngine
from fedhk.federation.entries import QUESTIONS, Members, Question, Terms
from fedhk.federation.participation import Participation
from fedhk.federation.phases.base import Phase
from fedhk.federation.placed import PlacedSite
from fedhk.federation.run import Run, conduct
from fedhk.model.fitted import FittedModel
from fedhk.model.passes import own_threads
from fedhk.privacy.mechanism import DifferentialPrivacy, SecureSummation
from fedhk.summary.model import ONLY_SITE
from fedhk.summary.words import number

# Of what sums are whole multiples under masks: counts, and values in units of the spread of their column, have room for
# 10^8 rows at 10 sites, and nine digits.
STEP = 2.0**-30


@dataclass(frozen=True)
class AskedView:
    """A view of the sites that are asked: its name, features, and whether it made the clusters."""

    name: str
    width: int
    columns: Columns
    used: bool

    @property
    def has_names(self) -> bool:
        """Whether its columns have names."""
        return self.columns is not None and not is_tensor(self.columns)

    def feature_names(self) -> list[str]:
        """Name of each feature: that of its column, else its number."""
        if self.columns is None:
            return [str(place) for place in range(self.width)]
        if is_tensor(self.columns):
            return [", ".join(map(str, place)) for place in np.ndindex(*self.columns)]
        return [str(column) for column in self.columns]


@dataclass(frozen=True)
class AskedSites:
    """The sites that are asked, and what is known of their views.

    Parameters
    ----------
    sites : dict of str to Views
        Their rows; of sites elsewhere views without rows.
    views : tuple of AskedView
        All views in question.
    kind : str
        The question, a name in `QUESTIONS`.
    engine : RemoteEngine or None
        What leads to sites elsewhere; None where they are in this process.
    first : tuple of Shared
        What sites elsewhere must have before they are asked: the terms, and the question.
    """

    sites: dict[str, Views]
    views: tuple[AskedView, ...]
    kind: str
    engine: RemoteEngine | None = None
    first: tuple[Shared, ...] = ()

    def with_view(self, name: str, columns: tuple[str, ...], tables: Mapping[str, FloatArray]) -> AskedSites:
        """Return the sites with one more view, which was not used for clustering."""
        sites = {site: views.with_view(name, columns, tables[site]) for site, views in self.sites.items()}
        return replace(self, sites=sites, views=(*self.views, AskedView(name, len(columns), columns, used=False)))


def take_sites(model: Any, sites: Any, *, used: bool = False) -> dict[str, Any]:
    """Read the sites of a fitted model, by name; with `used` only the views that the model knows.

    `sites` are as in `fit`, or the views of the only site of an estimator for one site.
    """
    check_model(model)
    if not hasattr(model, "predict"):
        raise TypeError(f"model must be a clusterer that places new rows, got {type(model).__name__}.")
    if is_one_site(model, sites):
        sites = {ONLY_SITE: sites if is_view_collection(sites) else [sites]}
    if not isinstance(sites, Mapping | list | tuple):
        return dict(check_clients(sites))  # it says what sites are
    named = name_sites(sites)
    if not used:
        return named
    known = list(model.view_names_)
    found = {
        site: {view: table for view, table in views.items() if view in known} if isinstance(views, Mapping) else views
        for site, views in named.items()
    }
    if empty := [site for site, views in found.items() if isinstance(views, Mapping) and not views]:
        raise DataError(f"Site {empty[0]!r} has none of the views of the model, which knows {known[:10]}.")
    return found


def check_model(model: Any) -> None:
    """Refuse what is no fitted clusterer of FedHK."""
    check_is_fitted(model)
    if not hasattr(model, "_model"):
        raise TypeError(f"model must be a fitted clusterer of FedHK, got {type(model).__name__}.")


def is_one_site(model: Any, sites: Any) -> bool:
    """Tell whether `sites` are the views of the only site of an estimator for one site."""
    return not are_sites(sites) and not hasattr(model, "client_models_")


def read_sites(model: Any, sites: Any, kind: str = "profile") -> AskedSites:
    """Check rows, as `take_sites` takes them, against a fitted model.

    Views that it does not know were held out from clustering; they are left out, unless the question reads them.
    """
    sites = take_sites(model, sites, used=not QUESTIONS[kind].held_out)
    known = known_views(model)
    asked = {name: AskedView(name, *size, used=True) for name, size in known.items()}
    checked = {site: fit_site(views, known, site) for site, views in check_clients(sites).items()}
    for views in checked.values():
        for name, table, columns in zip(views.names, views.tables, views.columns, strict=True):
            if table is not None:
                view = asked.setdefault(name, AskedView(name, int(table.shape[1]), columns, used=False))
                if view.columns is None:  # a model of one table knows no names
                    asked[name] = replace(view, columns=columns)
    _check_held_out(asked.values())
    _warn_of_excluded(model, checked)
    return AskedSites(checked, tuple(asked.values()), kind)


def _warn_of_excluded(model: Any, sites: Iterable[str]) -> None:
    """Warn of sites that the model left out because they deviate: their rows count in an answer."""
    excluded = {record["site"] for record in getattr(model, "deviations_", ()) if record["excluded"]}
    if found := [site for site in sites if site in excluded]:
        warnings.warn(
            f"the model left out {listed(found)}, whose values deviate (deviations_), and here rows of all sites that "
            "are given count. Mend the data and fit again, or ask without these sites.",
            UserWarning,
            stacklevel=4,
        )


def known_views(model: Any) -> dict[str, tuple[int, Columns]]:
    """Return the views that made the clusters, with widths and columns."""
    fitted: FittedModel = model._model
    return dict(zip(fitted.view_names, zip(fitted.widths, fitted.columns, strict=True), strict=True))


def reach_sites(
    model: Any,
    sites: Any,
    engine: RemoteEngine,
    kind: str,
    outcomes: Mapping[str, str] | None = None,
    *,
    other: Any = None,
) -> AskedSites:
    """Ask sites elsewhere which views they let a question read.

    Parameters
    ----------
    model : estimator
        A fitted clusterer. Its sites have kept their results of the fit.
    sites : None
        Rows, which nobody gives here: the sites have them.
    engine : RemoteEngine
        What led to the sites in the fit, or a new one.
    kind : str
        The question, a name in `QUESTIONS`, as the policies of sites list it.
    outcomes : dict of str to str, optional
        The column of each outcome.
    other : estimator, optional
        The clusterer whose clusters are compared. The sites have kept its results, too.
    """
    models = [model] if other is None else [model, other]
    for each in models:
        check_is_fitted(each)
        if not hasattr(each, "engine"):
            raise TypeError(f"model must have been fitted over sites, got {type(each).__name__}.")
    if sites is not None:
        raise DataError("engine leads to sites that have their own rows: leave sites out, or engine.")
    engine = engine.for_questions(held_out=QUESTIONS[kind].held_out)
    described, first = engine.describe(), engine.begin(None)
    held_by, *_ = [_count_holders(each, described) for each in models]
    asked = [AskedView(name, *size, used=True) for name, size in known_views(model).items()]
    columns = {name: found for terms in first if isinstance(terms, Terms) for name, found in terms.columns.items()}
    for name, found in columns.items():
        # what one site alone has would be told of it in any sum
        if name not in model.view_names_ and found and held_by[name] >= min(2, len(described)):
            asked.append(AskedView(name, len(found), found, used=False))
    # sites read what was clustered in the order of the model
    columns |= {view.name: tuple(view.feature_names()) if view.has_names else None for view in asked if view.used}
    _check_held_out(asked)
    question = Question(
        kind, model._model.digest(), dict(outcomes or {}), "" if other is None else other._model.digest()
    )
    entries = [replace(entry, columns=columns) if isinstance(entry, Terms) else entry for entry in first]
    return AskedSites(described, tuple(asked), kind, engine, (*entries, question))


def find_sites(model: Any, sites: Any, engine: RemoteEngine | None, kind: str, **question: Any) -> AskedSites:
    """Read the rows of sites at hand, or reach sites elsewhere, where there is an engine."""
    return read_sites(model, sites, kind) if engine is None else reach_sites(model, sites, engine, kind, **question)


def _count_holders(model: Any, described: Mapping[str, Views]) -> Counter[str]:
    """Count the sites that have each view; refuse a site without any view of the model."""
    held_by = Counter[str]()
    for site, views in described.items():
        held = {name for name, table in zip(views.names, views.tables, strict=True) if table is not None}
        if not held & set(model.view_names_):
            known = list(model.view_names_)[:10]
            raise DataError(f"Site {site!r} has none of the views of the model, which knows {known}.")
        held_by.update(held)
    return held_by


def _check_held_out(views: Iterable[AskedView]) -> None:
    """Refuse a column that stands both in a view that made the clusters and in one that did not."""
    names = [(view, set(map(base_name, view.feature_names()))) for view in views if view.has_names]
    for held_out, own in names:
        for used, others in names:
            both = sorted(own & others)
            if used.used and not held_out.used and both:
                raise DataError(
                    f"column {both[0]!r} is in view {used.name!r}, which made the clusters, and in {held_out.name!r}, "
                    "which did not: nothing honest can be said of it there. Leave it out of one of them, or rename it."
                )


@dataclass(frozen=True, eq=False)
class Answer:
    """The result of the sites' replies, and what they cost.

    Parameters
    ----------
    board : Board
        What the phases found.
    privacy_spent : (float, float) or None
        (epsilon, delta) of these answers; None without noise.
    privacy_total : (float, float) or None
        The same together with what the fit of the model released, as far as the model or the ledgers know it.
    releases : dict of str to Records
        What each site released with noise, by its ledger; sites elsewhere keep that to themselves.
    bytes_up, bytes_down, exchanges : int
        What was sent.
    """

    board: Board
    privacy_spent: tuple[float, float] | None
    privacy_total: tuple[float, float] | None
    releases: dict[str, Records]
    bytes_up: int
    bytes_down: int
    exchanges: int

    @property
    def n_sites(self) -> int:
        """Number of sites that were asked."""
        return len(self.board.get(Members).sites)


class Answered(ABC):
    """The answer to a question after a run: it has a table, and says what it spent."""

    # whether its intervals and tests include noise; not where it has none
    tests_noise: ClassVar[bool] = True

    answer: Answer
    noise: float

    @abstractmethod
    def table(self) -> PrintedTable:
        """Show the table as text."""

    @abstractmethod
    def facts(self) -> dict[str, Any]:
        """Return the main numbers behind the table, for JSON."""

    @property
    def privacy_spent(self) -> tuple[float, float] | None:
        """Return (epsilon, delta) of this answer; None without noise."""
        return self.answer.privacy_spent

    @property
    def privacy_total(self) -> tuple[float, float] | None:
        """(epsilon, delta) of this answer and of what the fit released; None without noise."""
        return self.answer.privacy_total

    def _tell_strata(self, within: str, *, stratified: bool) -> str:
        """Say how a test treats sites, where there are several."""
        if self.answer.n_sites == 1:
            return ""
        return within if stratified else " over all sites together"

    def _noise_notes(self) -> list[str]:
        """A sentence about the noise, where there is some."""
        within = ", which intervals and tests include" if self.tests_noise else ""
        return [f"With noise of standard deviation {number(self.noise, 2)} in each count{within}."][: self.noise > 0]

    def _repr_html_(self) -> str:
        return self.table()._repr_html_()

    def __str__(self) -> str:
        return str(self.table())


def ask_sites(
    model: Any,
    asked: AskedSites,
    phases: Sequence[Phase[Any, Any]],
    *,
    privacy: DifferentialPrivacy | None = None,
    secure: bool | SecureSummation = False,
) -> Answer:
    """Run phases over the sites of a fitted model. Every site must answer.

    Parameters
    ----------
    model : estimator
        A fitted clusterer.
    asked : AskedSites
        From `read_sites`, or from `reach_sites` where sites are elsewhere.
    phases : sequence of Phase
        The questions. With noise or masks each is sealed, as in a fit.
    privacy : DifferentialPrivacy or None
        The budget of these questions, all of which is used. Rows are then placed by the global model: a site's own
        model depends on all of its rows, so that one row could change many labels.
    secure : bool or SecureSummation
        Whether the server sees sums over all sites only.
    """
    terms = make_question_terms(model, privacy, secure, count_sums(phases), asked.sites)
    guards = make_guards(terms, asked.sites, None) if asked.engine is None else {}
    first = [terms.protect(entry) if isinstance(entry, Terms) else entry for entry in asked.first] or announce(terms)
    board = Board().put(Members(tuple(asked.sites)), *first)
    participation = Participation(min_sites=len(asked.sites))
    with own_threads() as workers:
        engine: Engine | None = asked.engine
        if engine is None:
            sites = make_placed(model, asked, own=terms.noise is None)
            engine = InProcessEngine(sites, guards, workers=workers)
        try:
            run = conduct(terms.compose(phases), engine, Run(board=board), seed=0, participation=participation)
        finally:
            engine.close()
    releases, spent = list_releases(guards, run.board), terms.spent(run.board)
    total = find_total_spent(model, terms, guards, releases) if releases else add_budgets(model, spent)
    up, down = run.pending["bytes_up"], run.pending["bytes_down"]
    return Answer(run.board, spent, total, releases, up, down, run.exchange)


def count_sums(phases: Iterable[Phase[Any, Any]]) -> int:
    """Count the phases that ask for a sum with noise."""
    return sum(getattr(phase, "with_noise", True) for phase in phases)


def make_placed(model: Any, asked: AskedSites, *, own: bool) -> dict[str, PlacedSite]:
    """Make the sites with the model that places their rows: their own if they have one, else the global one."""
    models = getattr(model, "client_models_", {}) if own else {}
    fitted = {name: models.get(name, model)._model for name in asked.sites}
    if QUESTIONS[asked.kind].common_centers:
        fitted = {name: model._model.with_references_of(site) for name, site in fitted.items()}
    return {name: PlacedSite(name, views, model=fitted[name]) for name, views in asked.sites.items()}
