"""Two models compared on the same rows: last year's and this year's, two algorithms, two numbers of clusters."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from scipy.optimize import linear_sum_assignment

from fedhk._typing import FloatArray, IntArray
from fedhk.after.columns import MOST_NUMBERS, TOO_MANY_NUMBERS, PlaceCount, PlacesRequest
from fedhk.after.run import Answer, Answered, AskedSites, ask_sites, find_sites, make_placed, read_sites
from fedhk.after.stability import share_rows
from fedhk.after.tables import LEAST_ROWS, PrintedTable, is_small, show_count
from fedhk.agreement.frames import adjust, share_information
from fedhk.data.checks import check_count
from fedhk.data.frames import pandas
from fedhk.errors import DataError, MessageError
from fedhk.federation.board import Board, Entry
from fedhk.federation.engines.base import RemoteEngine
from fedhk.federation.placed import OTHER_CLUSTERS
from fedhk.model.passes import own_threads
from fedhk.privacy.mechanism import AFTER, DifferentialPrivacy, SecureSummation
from fedhk.summary.words import number


@dataclass(frozen=True)
class PairsRequest(PlacesRequest):
    """Ask for rows by their clusters in two models, which have so many."""

    views: ClassVar[tuple[str, ...]] = (OTHER_CLUSTERS,)

    n_others: int

    @property
    def n_places(self) -> int:
        return self.n_others

    def find_places(self, values: FloatArray) -> IntArray:
        return np.clip(values[:, 0], 0, self.n_others - 1).astype(np.intp)

    def __post_init__(self) -> None:
        if not 0 < self.n_clusters * self.n_others <= MOST_NUMBERS:
            raise MessageError(TOO_MANY_NUMBERS)


@dataclass(frozen=True, eq=False)
class PairCounts(Entry):
    """Rows by their clusters in two models, (c, d), and the standard deviation of the noise in each number."""

    counts: FloatArray
    noise: float


@dataclass(frozen=True)
class CountPairs(PlaceCount[PairsRequest]):
    """Count rows by their clusters in two models."""

    name: ClassVar[str] = AFTER + "pairs"
    questions: ClassVar[tuple[str, ...]] = ("compare",)

    n_clusters: int
    n_others: int

    def request(self, board: Board) -> PairsRequest:
        return PairsRequest(self.n_clusters, self.n_others)

    def take(self, board: Board, total: FloatArray, noise: float) -> Board:
        return board.put(PairCounts(total.reshape(self.n_clusters, self.n_others), noise))


@dataclass(frozen=True, eq=False)
class Comparison(Answered):
    """Two models on the same rows.

    Parameters
    ----------
    counts : array of shape (c, d)
        Rows by their cluster in the first model and in the other one.
    matched : dict of int to int
        Clusters of the first model and their partners in the other one, so that most rows stay together; a cluster
        without a partner is not in it.
    jaccard : dict of int to float
        For each cluster with a partner, rows in both over rows in either.
    adjusted_rand, adjusted_information : float
        How far both models agree: 1 for the same clusters, about 0 by chance.
    stayed : float
        Share of the rows that are in matched clusters.
    least_rows : int
        Smaller counts are not shown.
    noise : float
        Standard deviation of the noise in counts.
    answer : Answer
        What was sent, and what it spent.
    """

    tests_noise: ClassVar[bool] = False

    counts: FloatArray
    matched: dict[int, int]
    jaccard: dict[int, float]
    adjusted_rand: float
    adjusted_information: float
    stayed: float
    least_rows: int
    noise: float
    answer: Answer = field(repr=False)

    def frame(self) -> Any:
        """Return a pandas data frame with one line for each pair of clusters with rows; small counts are NaN."""
        small = is_small(self.counts, self.least_rows)
        lines = [
            {
                "cluster": a,
                "other": b,
                "rows": np.nan if small[a, b] else self.counts[a, b],
                "matched": self.matched.get(a) == b,
            }
            for a, b in np.ndindex(*self.counts.shape)
        ]
        return pandas().DataFrame(lines)

    def facts(self) -> dict[str, Any]:
        return {"matched": self.matched, "adjusted_rand": self.adjusted_rand}

    def table(self) -> PrintedTable:
        """Make a table with one line for each cluster of the first model, one column for each of the other."""
        head = ["", *(f"other {b}" for b in range(self.counts.shape[1])), "partner", "Jaccard"]
        rows = []
        for a, counts in enumerate(self.counts):
            partner = str(self.matched.get(a, "–"))
            cells = [show_count(count, self.least_rows, noise=self.noise) for count in counts]
            rows.append([f"cluster {a}", *cells, partner, number(self.jaccard.get(a, np.nan), 2)])
        return PrintedTable("Two models compared", head, rows, self.notes)

    @property
    def notes(self) -> list[str]:
        """Notes below the table."""
        rand, shared = number(self.adjusted_rand, 2), number(self.adjusted_information, 2)
        return [
            f"{100 * self.stayed:.0f} % of the rows are in matched clusters.",
            f"Adjusted Rand index {rand}, adjusted mutual information {shared}.",
            f"Counts below {self.least_rows} are not shown.",
            *self._noise_notes(),
        ]


def adjusted_rand_index(table: FloatArray) -> float:
    """Compute the adjusted Rand index of a table of counts; 1 for two trivial partitions that are equal."""
    pairs = float(np.sum(table * (table - 1)) / 2)
    rows, columns = (float(np.sum(part * (part - 1)) / 2) for part in (table.sum(axis=1), table.sum(axis=0)))
    total = float(table.sum() * (table.sum() - 1) / 2)
    if total <= 0:
        return 1.0
    expected, most = rows * columns / total, (rows + columns) / 2
    return 1.0 if most == expected else (pairs - expected) / (most - expected)


def compare(
    model: Any,
    other: Any,
    sites: Any = None,
    *,
    engine: RemoteEngine | None = None,
    least_rows: int = LEAST_ROWS,
    privacy: DifferentialPrivacy | None = None,
    secure: bool | SecureSummation = False,
) -> Comparison:
    """Compare the clusters of two fitted models on the same rows, over sites that keep them.

    Parameters
    ----------
    model, other : estimator
        Fitted clusterers of FedHK, such as those of two years; they may have other numbers of clusters and other views.
    sites : dict or list of sites
        Rows with the views of both. Left out with `engine`.
    engine : fedhk.federation.engines.RemoteEngine or None, default=None
        What leads to sites that have their own rows, as in `fit`. They must have kept the results of both fits.
    least_rows : int, default=5
        Smaller counts are not shown.
    privacy : fedhk.privacy.DifferentialPrivacy or None, default=None
        A budget for this question; `bounds` may be any pair.
    secure : bool or fedhk.privacy.SecureSummation, default=False
        Whether the server sees sums over all sites only.

    Returns
    -------
    Comparison
        Counts, matched clusters, and how far both models agree.

    Examples
    --------
    >>> import fedhk
    >>> sites = fedhk.datasets.make_sites(3, 60, n_clusters=3, separation=9, shift=0.2, random_state=0).sites
    >>> three, four = (fedhk.EFKMVC(c, random_state=0).fit(sites) for c in (3, 4))
    >>> found = fedhk.compare(three, four, sites)
    >>> found.counts.shape, len(found.matched)
    ((3, 4), 3)
    """
    least_rows = check_count(least_rows, "least_rows")
    asked = find_sites(model, sites, engine, "compare", other=other)
    if engine is None:
        asked = _add_clusters(asked, other, sites, own=privacy is None)
    phase = CountPairs(int(model.n_clusters_), int(other.n_clusters_))
    answer = ask_sites(model, asked, [phase], privacy=privacy, secure=secure)
    found = answer.board.get(PairCounts)
    return _read_comparison(found, least_rows, answer)


def _add_clusters(asked: AskedSites, other: Any, sites: Any, *, own: bool) -> AskedSites:
    """Return the sites with the clusters of another model as a view."""
    with own_threads():
        placed = make_placed(other, read_sites(other, sites, asked.kind), own=own)
        labels = {name: site.labels()[:, None].astype(np.float64) for name, site in placed.items()}
    for name, views in asked.sites.items():
        if len(labels[name]) != views.n_rows:
            raise DataError(
                f"Site {name!r} has {views.n_rows} rows in one model's views, {len(labels[name])} in the other's."
            )
    return asked.with_view(OTHER_CLUSTERS, ("cluster",), labels)


def _read_comparison(found: PairCounts, least_rows: int, answer: Answer) -> Comparison:
    counts = np.maximum(found.counts, 0.0)
    pairs = [(int(a), int(b)) for a, b in zip(*linear_sum_assignment(-counts), strict=True) if counts[a, b] > 0]
    shares = share_rows(counts)
    total = max(float(counts.sum()), 1e-300)
    return Comparison(
        counts=found.counts,
        matched=dict(pairs),
        jaccard={a: float(shares[a, b]) for a, b in pairs},
        adjusted_rand=adjusted_rand_index(counts),
        adjusted_information=adjust(*share_information(np.round(counts))),
        stayed=float(sum(counts[a, b] for a, b in pairs)) / total,
        least_rows=least_rows,
        noise=found.noise,
        answer=answer,
    )
