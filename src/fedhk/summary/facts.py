"""What a report says, as plain data: nothing here knows of files, estimators or HTML."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from fedhk._typing import FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class View:
    """One view of the global model.

    Parameters
    ----------
    name : str
        Its name.
    features : tuple of str
        Names of its columns; of a tensor, places such as "[2, 3]".
    centers : array of shape (c, d)
        Centres in input units.
    weight : float
        Its weight in the global model.
    mean, spread : array of shape (d,)
        Mean and standard deviation of each feature over all rows, in input units; the spread of a constant is 0.
    """

    name: str
    features: tuple[str, ...]
    centers: FloatArray
    weight: float
    mean: FloatArray
    spread: FloatArray

    def deviations(self, values: FloatArray) -> FloatArray:
        """Express values in spreads from the mean of all rows; 0 for constants."""
        varies = self.spread > 0
        result: FloatArray = np.where(varies, (values - self.mean) / np.where(varies, self.spread, 1.0), 0.0)
        return result


@dataclass(frozen=True, eq=False)
class Assignment:
    """The clusters of a site's rows.

    Parameters
    ----------
    labels, global_labels : array of shape (n,)
        Cluster in the site's own model, and in the global one.
    certainty : array of shape (n,)
        Largest membership.
    """

    labels: IntArray
    global_labels: IntArray
    certainty: FloatArray


@dataclass(frozen=True, eq=False)
class Site:
    """One site. Everybody knows its name and views; the rest is there only where the page may show it.

    Parameters
    ----------
    name : str
        Its name.
    views : tuple of str
        The views that it has.
    assignment : Assignment or None
        Clusters of its rows.
    centers, weights : dict of str to array of shape (c, d), and to float
        Centres in input units and view weights of its own model, by view.
    shares : dict of str to float
        Share of its own that it uses, by component of the model.
    cluster_means : dict of str to array of shape (c, d)
        Mean of its rows in each cluster, by view, in input units; NaN where there are none. Empty without rows.
    separation : float
        Mean over rows of 1 - (distance to the own centre) / (distance to the next): 1 on the centres, 0 between two.
    """

    name: str
    views: tuple[str, ...]
    assignment: Assignment | None = None
    centers: Mapping[str, FloatArray] = field(default_factory=dict)
    weights: Mapping[str, float] = field(default_factory=dict)
    shares: Mapping[str, float] = field(default_factory=dict)
    cluster_means: Mapping[str, FloatArray] = field(default_factory=dict)
    separation: float = math.nan


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


@dataclass(frozen=True, eq=False)
class MapPoints:
    """A view in two dimensions.

    Parameters
    ----------
    centers : array of shape (c, 2)
        Where the global centres are.
    points : array of shape (n, 2)
        Rows, at most a few thousand of them; none where rows are not shown.
    sites, labels : array of shape (n,)
        Number of the site (as in the facts) and cluster of each point.
    own_centers : dict of int to array of shape (c, 2)
        Where the centres of a site's own model are.
    shares : tuple of (float, float)
        Share of the variation that each axis shows.
    flat : bool
        Whether the view has one feature, so that the second axis means nothing.
    n_rows : int
        Rows that have the view, of which points are a sample.
    """

    centers: FloatArray
    points: FloatArray
    sites: IntArray
    labels: IntArray
    own_centers: Mapping[int, FloatArray]
    shares: tuple[float, float]
    flat: bool = False
    n_rows: int = 0


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


@dataclass(frozen=True, eq=False)
class Facts:
    """All that a page is made of.

    Parameters
    ----------
    title, algorithm, config, command, version : str
        Name of the run, what was run, what repeats it, and the version of FedHK.
    views : tuple of View
        The views of the global model.
    sites : tuple of Site
        All sites; on the page of a site that one alone.
    n_sites, n_rows : int
        Sites that took part, and rows of all of them; None where that is not released.
    rounds : tuple of Round
        The history.
    converged, stop_reason : bool or None, str
        Whether the run stopped because nothing changed any more, where that is known, and why it stopped.
    fuzzifier : float
        How much clusters share rows; close to 1, hardly.
    maps : dict of str to MapPoints
        Maps of rows by view, where rows may be shown.
    gains, held_out : tuple of Gain, bool
        What personalization gained, and whether that is measured on rows that no model saw.
    privacy : tuple of (float, float) or None
        (epsilon, delta) that was spent.
    secure : bool
        Whether the server saw sums over all sites only.
    releases : tuple of (str, int, float)
        What one site released under noise: phase, how often, and noise over sensitivity.
    spent : dict of str to float
        Epsilon that each site's ledger says was spent, at the delta of the run.
    private : Facts or None
        A run of the same sites under noise, of which only what was released is known; for a page that shows both.
    scores : Scores or None
        What other ways to cluster these rows came to.
    released_only : bool
        Whether the page keeps to what left the sites.
    own_page_of : str or None
        The site whose page this is.
    spread_of_rows : bool
        Whether spreads were measured on rows; otherwise they are those of the model's units.
    unit_rows : bool
        Whether rows were divided by their length, so that centres are not in input units.
    notes : tuple of str
        What is missing on the page, and why.
    """

    title: str
    algorithm: str
    views: tuple[View, ...]
    sites: tuple[Site, ...]
    n_sites: int
    rounds: tuple[Round, ...]
    converged: bool | None
    stop_reason: str
    fuzzifier: float
    n_rows: int | None = None
    maps: Mapping[str, MapPoints] = field(default_factory=dict)
    gains: tuple[Gain, ...] = ()
    held_out: bool = False
    privacy: tuple[float, float] | None = None
    secure: bool = False
    releases: tuple[tuple[str, int, float], ...] = ()
    spent: Mapping[str, float] = field(default_factory=dict)
    private: Facts | None = None
    scores: Scores | None = None
    released_only: bool = False
    own_page_of: str | None = None
    spread_of_rows: bool = False
    unit_rows: bool = False
    notes: tuple[str, ...] = ()
    config: str = ""
    command: str = ""
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
    def has_rows(self) -> bool:
        """Whether rows were read."""
        return any(site.cluster_means for site in self.sites)

    @property
    def n_moved(self) -> int:
        """Rows that are in another cluster than in the global model."""
        return sum(int(np.sum(a.labels != a.global_labels)) for a in self.assigned.values())

    @property
    def has_traffic(self) -> bool:
        """Whether bytes were counted."""
        return any(record.bytes_up is not None for record in self.rounds)

    @property
    def bytes_up(self) -> int:
        """Bytes that sites sent."""
        return sum(r.bytes_up or 0 for r in self.rounds)

    @property
    def bytes_down(self) -> int:
        """Bytes that were sent to sites."""
        return sum(r.bytes_down or 0 for r in self.rounds)

    @property
    def step_name(self) -> str:
        """What a record of the history is: a round, or an iteration at one site."""
        return "round" if self.has_traffic or self.n_sites > 1 else "iteration"

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
