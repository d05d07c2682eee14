"""What a report says, as plain data: nothing here knows of files, estimators or HTML."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedhk._typing import FloatArray, IntArray
from fedhk.data.dictionary import Dictionary
from fedhk.data.row_forms import PLAIN_ROWS, RowForm


@dataclass(frozen=True, eq=False)
class View:
    """One view of the global model. Numbers of features are in input units."""

    name: str
    features: tuple[str, ...]  # names of columns; of a tensor, places such as "[2, 3]"
    centers: FloatArray  # (c, d)
    weight: float
    mean: FloatArray  # (d,), over all rows
    spread: FloatArray  # (d,), standard deviation over all rows; 0 of a constant
    form: RowForm = PLAIN_ROWS  # what the model does to each row first; centres, mean and spread are of such rows
    dates: tuple[str, ...] = ()  # features that are days since 1970, as far as rows or a data dictionary say so

    def deviations(self, values: FloatArray) -> FloatArray:
        """Express values in spreads from the mean of all rows; 0 for constants."""
        varies = self.spread > 0
        result: FloatArray = np.where(varies, (values - self.mean) / np.where(varies, self.spread, 1.0), 0.0)
        return result


@dataclass(frozen=True, eq=False)
class Assignment:
    """The clusters of a site's rows, in its own model and in the global one, and the largest membership of each row."""

    labels: IntArray
    global_labels: IntArray
    certainty: FloatArray


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows of one site, and their clusters in its own model."""

    tables: Mapping[str, FloatArray | None]  # (n, d) by view, in the form of the view; NaN is a missing cell
    labels: IntArray
    given: Mapping[str, FloatArray | None] | None = None  # the same as they came in; None where that is `tables`

    def sample(self, most: int, seed: int = 0) -> Rows:
        """Draw at most so many rows with a fixed seed, in their order."""
        if len(self.labels) <= most:
            return self
        chosen = np.sort(np.random.default_rng(seed).choice(len(self.labels), most, replace=False))
        tables = _choose(self.tables, chosen)
        return Rows(tables, self.labels[chosen], None if self.given is None else _choose(self.given, chosen))

    def views_of(self, model: Any) -> Any:
        """Give the rows as a model takes them: views by name, also where it was fitted to one table."""
        given = self.tables if self.given is None else self.given
        return {name: given.get(name) for name in model.view_names_}


def _choose(tables: Mapping[str, FloatArray | None], rows: IntArray) -> dict[str, FloatArray | None]:
    return {name: None if table is None else table[rows] for name, table in tables.items()}


@dataclass(frozen=True, eq=False)
class Site:
    """One site. Everybody knows its name and views; the rest is there only where the page may show it."""

    name: str
    views: tuple[str, ...]  # the views that it has
    assignment: Assignment | None = None
    centers: Mapping[str, FloatArray] = field(default_factory=dict)  # (c, d) of its own model by view, in input units
    weights: Mapping[str, float] = field(default_factory=dict)  # of its own model, by view
    shares: Mapping[str, float] = field(default_factory=dict)  # share of its own that it uses, by component
    rows: Rows | None = None
    separation: float = math.nan  # mean of 1 - (distance to the own centre) / (distance to the next)


@dataclass(frozen=True)
class Round:
    """One round: what it reached and what it cost. Traffic is None where there is a single site."""

    number: int
    objective: float
    seconds: float
    sites: int | None = None
    bytes_up: int | None = None
    bytes_down: int | None = None
    refused: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Gain:
    """Objective per row of a site's rows, under each kind of model that there is; lower is better."""

    site: str
    rows: int
    objectives: Mapping[str, float]


@dataclass(frozen=True)
class Scores:
    """A table of ways to cluster the same rows, measured against known classes, and a note how."""

    note: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class TriedNumber:
    """A number of clusters that was tried, as `selection_` of a model has it; one cluster has NaN."""

    n_clusters: int
    gap: float
    agreement: float
    slowing: float
    evidence: float
    score: float
    taken: bool
    note: str


@dataclass(frozen=True)
class Moved:
    """A cluster that has moved since the run before, at a site or at all sites; distances in standard deviations."""

    cluster: int
    site: str
    distance: float
    by_chance: float
    p: float  # adjusted for all tests


@dataclass(frozen=True)
class Update:
    """What the last update of a model found: clusters that are new, gone and moved."""

    new: tuple[int, ...]
    gone: tuple[int, ...]
    moved: tuple[Moved, ...]
    compared: bool  # whether new rows were compared with earlier ones; with noise they are not


@dataclass(frozen=True)
class Extra:
    """A section of the page about what was asked after the run: its id, its title, words below it, its markup."""

    name: str
    title: str
    words: str
    content: str
    verdict: str = ""  # a sentence for the top of the page


@dataclass(frozen=True, eq=False, kw_only=True)
class Facts:
    """All that a page is made of."""

    title: str
    algorithm: str
    views: tuple[View, ...]
    sites: tuple[Site, ...] = ()  # all sites; on the page of a site that one alone
    n_sites: int  # that took part
    n_rows: int | None = None  # of all sites; None where that is not released
    rounds: tuple[Round, ...]
    converged: bool | None  # None where that is not known
    stop_reason: str
    fuzzifier: float
    gains: tuple[Gain, ...] = ()
    held_out: bool = False  # whether gains are measured on rows that no model saw
    privacy: tuple[float, float] | None = None  # (epsilon, delta) that was spent
    secure: bool = False  # whether the server saw sums over all sites only
    releases: tuple[tuple[str, int, float], ...] = ()  # of one site: phase, how often, noise over sensitivity
    spent: Mapping[str, float] = field(default_factory=dict)  # epsilon by the ledger of each site
    deviations: tuple[str, ...] = ()  # what is off at single sites, a sentence each
    selection: tuple[TriedNumber, ...] = ()  # numbers of clusters that were tried, where it was not given
    private: Facts | None = None  # a run of the same sites under noise, for a page that shows both
    scores: Scores | None = None
    released_only: bool = False  # whether the page keeps to what left the sites
    own_page_of: str | None = None  # the site whose page this is
    elsewhere: bool = False  # whether the sites of a run folder are on other machines, with their rows
    spread_of_rows: bool = False  # whether spreads were measured on rows; otherwise they are those of the model's units
    unit_rows: bool = False  # whether rows were divided by their length, so that centres are not in input units
    dictionary: Dictionary = field(default_factory=Dictionary)  # what the columns are, where that was written down
    about: str = ""  # what the data are
    update: Update | None = None  # what is different from the run before, where the model was updated
    notes: tuple[str, ...] = ()  # what is missing on the page, and why
    after: tuple[Extra, ...] = ()  # what was asked after the run
    config: str = ""
    command: str = ""  # what repeats the run
    version: str = ""

    @property
    def n_clusters(self) -> int:
        """Number of clusters."""
        return len(self.views[0].centers)

    @property
    def assigned(self) -> dict[int, Assignment]:
        """Clusters of rows by number of the site, where the page may show them."""
        return {s: site.assignment for s, site in enumerate(self.sites) if site.assignment is not None}

    @property
    def sizes(self) -> dict[int, IntArray]:
        """Rows in each cluster, by number of the site."""
        return {s: np.bincount(a.labels, minlength=self.n_clusters) for s, a in self.assigned.items()}

    @property
    def total_sizes(self) -> IntArray:
        """Rows in each cluster, at all sites."""
        return sum(self.sizes.values(), start=np.zeros(self.n_clusters, np.int64))

    @property
    def has_rows(self) -> bool:
        """Whether rows were read."""
        return any(site.rows is not None for site in self.sites)

    @property
    def n_moved(self) -> int:
        """Rows that are in another cluster than in the global model."""
        return sum(int(np.sum(a.labels != a.global_labels)) for a in self.assigned.values())

    @property
    def traffic(self) -> tuple[int, int] | None:
        """Bytes that sites sent and received; None where they were not counted."""
        if all(r.bytes_up is None for r in self.rounds):
            return None
        return sum(r.bytes_up or 0 for r in self.rounds), sum(r.bytes_down or 0 for r in self.rounds)

    @property
    def step_name(self) -> str:
        """What a record of the history is: a round, or an iteration at one site."""
        return "round" if self.traffic or self.n_sites > 1 else "iteration"

    @property
    def personal(self) -> bool:
        """Whether any site's own model differs from the global one."""
        return any(distance > 0 for site in self.sites for distance in self.distances(site).values())

    def distances(self, site: Site) -> dict[str, float]:
        """Root mean square distance of a site's centres from the global ones, in spreads, by view that it has."""
        return {
            view.name: float(np.sqrt(np.mean(np.square(view.deviations(own) - view.deviations(view.centers)))))
            for view in self.views
            if view.name in site.views and (own := site.centers.get(view.name)) is not None
        }
