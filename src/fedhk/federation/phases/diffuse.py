"""Diffuse: the directions in which heat stays longest, from sums over rows, and rows embedded in them.

Sites get directions and answer with products of their affinities with them, or with the Gram matrix of their affinities
where that is smaller. The server computes eigenvectors, and asks again where they are not good enough.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from fedhk._symmetric import from_upper_half, upper_half
from fedhk._typing import FloatArray, IntArray
from fedhk.embedding.affinity import AnchorGraph
from fedhk.embedding.diffusion import EmbeddedModel, make_embedded_rows, of_means
from fedhk.embedding.groups import AnchorGroups
from fedhk.embedding.map import DiffusionMap
from fedhk.embedding.options import Diffusion
from fedhk.embedding.spectrum import (
    EXTRA_DIRECTIONS,
    NEXT_DIRECTIONS,
    Eigenvectors,
    approximate_eigenvectors,
    embed_affinities,
    first_directions,
    gram,
    product_sensitivity,
    products,
    solve_gram,
)
from fedhk.errors import MessageError, Rule
from fedhk.federation.board import Board, Entry, RowEntry
from fedhk.federation.entries import Broadcast, FinalModel, FinalParameters, Space
from fedhk.federation.phases.anchors import (
    PART_NEIGHBOURS,
    Anchors,
    Groups,
    StandIns,
    count_exchanges,
    round_points,
    tie_rows,
)
from fedhk.federation.phases.base import Phase, Sum, SumPhase
from fedhk.federation.phases.cluster_means import ClusterMeans, Limits
from fedhk.federation.phases.mixture import PRECISION
from fedhk.federation.phases.rounds import digest_names
from fedhk.federation.plausible import MOST_ROWS, ROUNDING
from fedhk.federation.protocols.base import Protocol
from fedhk.federation.sealed import Noise
from fedhk.federation.site import Site
from fedhk.federation.table import Table, read_arrays, round_arrays, round_as_sent
from fedhk.model.descent import minimise
from fedhk.model.fitted import FittedModel
from fedhk.model.parameters import Parameters
from fedhk.model.passes import Passes
from fedhk.model.rows import Rows
from fedhk.privacy.sensitivity import Neighbours, sum_sensitivity
from fedhk.starts.settings import Settings

# The error at which an eigenvector is good enough, and the most exchanges that are spent on it. What more exchanges
# change is below what anchors drawn with another seed change (docs/diffusion.md).
TOL, MOST_EXCHANGES = 0.02, 6

# Directions go to sites in bytes, those of the embedding too: its rows have shares in many anchors, over which rounding
# to 1/254 averages out. Whatever directions are asked, products with them are exact, and what rounding leaves out of
# the eigenvectors is found outside of them. Sums come back in half precision, whose error of 2^-11 is far below `TOL`.
DIRECTION_PRECISION, SUM_PRECISION = "byte", "half"

# Bytes of a number that sites get and that they send, and the exchanges that eigenvectors usually take: by these the
# Gram matrix and products with directions are compared.
RECEIVED_BYTES, SENT_BYTES, USUAL_EXCHANGES = 1, 2, 3

# What rounding may add to sums of affinities, and to sums that come in half precision.
SLACK, SUM_SLACK = 1e-6, 1e-3

# With noise: passes over the parts to find clusters of them, and where parts may lie and how fast ties may weaken so
# that no distance overflows, whatever the rows are.
PART_PASSES, MOST_REACH, MOST_SCALE = 100, 1e60, 100.0

# Rows of a part are surely not noise above so many standard deviations of their count.
SURE_ROWS = 2.0

# The fuzzifier of the memberships that rows are given under "auto": they are in proportion to 1 / distance^2. Rounds
# have a smaller one, with which nearly all rows of an embedding have a membership of 1, also those in the wrong
# cluster. Of nine values, this one told best on 46 generated federations how often rows are in the right cluster,
# and so it did on 21 real data sets (benchmarks/results/certainty.md).
READ_FUZZIFIER = 1.5

# What a site says to anchors beyond that.
UNBOUNDED_TIES = Rule("anchors with which a row could say more than the noise is sized for")


@dataclass(frozen=True, eq=False)
class Embedding(RowEntry):
    """The embedding: from here on a row is its place among the directions in which heat stays."""

    directions: Table  # of shape (k, m): what affinities are multiplied by
    values: FloatArray  # eigenvalues, largest first
    fuzzifier: float  # of the memberships that rows are given, after the rounds

    @classmethod
    def of(cls, projection: FloatArray, values: FloatArray, settings: Settings) -> Embedding:
        """Round a projection, of shape (m, k)."""
        fuzzifier = READ_FUZZIFIER if settings.fuzzifier is None else settings.fuzzifier
        return cls(Table.of(projection.T, DIRECTION_PRECISION), values, fuzzifier)

    @cached_property
    def projection(self) -> FloatArray:
        """The projection as server and sites read it, of shape (m, k)."""
        return np.ascontiguousarray(self.directions.read().T)

    @property
    def space(self) -> Space:
        """Where embedded rows are: they have length 1."""
        return Space((np.full(self.projection.shape[1], 1.0 + ROUNDING),))

    def apply(self, rows: Rows) -> Rows:
        self.directions.check((None, sum(rows.widths)), "", "directions of the embedding")
        embedding = embed_affinities(rows.views.tables[0], self.projection)
        return make_embedded_rows(embedding, rows.sample_weight)

    def undo(self, parameters: Parameters, board: Board) -> Parameters:
        return of_means(parameters, board.get(ClusterMeans).in_units(board))

    def wrap(self, model: FittedModel, board: Board) -> FittedModel:
        clusters = board.get(ClusterMeans)
        means = clusters.in_units(board)
        return EmbeddedModel(
            replace(model.parameters, fuzzifier=self.fuzzifier),
            model.references,
            model.view_names,
            model.columns,
            diffusion=DiffusionMap(board.get(Anchors).graph, self.projection, self.values),
            means=means,
            sizes=clusters.sizes,
            starts=np.hstack(means),
            limits=next((found.squares for found in board.find(Limits)), np.zeros(0)),
        )


@dataclass(frozen=True, eq=False)
class Search(Entry):
    """Where the search for eigenvectors stands.

    `known` has the directions and products that were asked and answered so far, by the same sites; the first direction
    of all is 1. `exchanges` may be more than that, where sites came or went on the way.
    """

    directions: FloatArray  # of shape (m, q): what sites are asked next; q = 0 asks for the whole Gram matrix
    known: tuple[tuple[FloatArray, FloatArray], ...] = ()
    exchanges: int = 0
    answered: str = ""  # digest of the names of the sites that answered last
    known_by: str = ""  # digest of the names of those whose products are known

    @property
    def asks_gram(self) -> bool:
        """Whether the whole Gram matrix is asked for."""
        return int(self.directions.shape[1]) == 0

    def as_matrix(self, values: FloatArray) -> FloatArray:
        """The numbers of an answer as a matrix."""
        if not self.asks_gram:
            return values.reshape(self.directions.shape)
        return from_upper_half(values)


@dataclass(frozen=True, eq=False)
class DiffuseRequest:
    """Ask for products of affinities with directions, or for their whole Gram matrix where there are none."""

    ones: bool  # whether the first direction is 1, which need not be sent: its product are the column sums
    directions: Table  # the others, of shape (q, m)

    def read(self) -> FloatArray:
        """All directions, of shape (m, q)."""
        rest = self.directions.read().T
        return np.hstack([np.ones((len(rest), 1)), rest]) if self.ones else rest


@dataclass(frozen=True)
class Diffuse(SumPhase[DiffuseRequest]):
    """Eigenvectors of the diffusion, the embedding that they give, and the start of the rounds in it."""

    name: ClassVar[str] = "diffuse"

    settings: Settings
    protocol: Protocol
    seed: int
    workers: int = 1
    scale: float = Diffusion.scale  # with noise: how fast ties weaken with the distance
    tol: float = TOL  # error of the eigenvectors at which no further exchange is spent on them
    max_exchanges: int = MOST_EXCHANGES

    def sealed(self, terms: Any) -> list[Phase[Any, Any]]:
        if terms.noise is None:
            return super().sealed(terms)
        return [terms.seal(CountTies(self.settings, self.scale, self.seed, terms.noise, self.workers))]

    def begin(self, board: Board) -> Board:
        stand_ins, wanted = board.get(StandIns).affinities, self._wanted(board)
        columns = stand_ins.shape[1]
        if gram_is_smaller(columns, wanted + EXTRA_DIRECTIONS):
            return board.put(Search(np.zeros((columns, 0))))
        # where rows that stand in for those of the sites say that heat stays longest
        return board.put(Search(_round_directions(first_directions(stand_ins, wanted, _groups(board), self.tol))))

    def is_done(self, board: Board, exchanges: int) -> bool:
        return board.has(Embedding)

    def request(self, board: Board) -> DiffuseRequest:
        search = board.get(Search)
        ones = not search.known and not search.asks_gram
        return DiffuseRequest(ones, Table.of(search.directions[:, int(ones) :].T, DIRECTION_PRECISION))

    def size(self, board: Board) -> int:
        search = board.get(Search)
        columns = len(search.directions)
        return columns * (columns + 1) // 2 if search.asks_gram else search.directions.size

    @staticmethod
    def vector(site: Site, request: DiffuseRequest) -> FloatArray:
        site.board.get(Anchors)  # without them, rows are no affinities
        rows = site.rows(upto=Embedding)
        request.directions.check((None, sum(rows.widths)), site.name, "directions")
        affinities, directions = rows.views.tables[0], request.read()
        if directions.shape[1]:
            return products(affinities, directions, rows.sample_weight).ravel()
        return upper_half(gram(affinities, rows.sample_weight))

    @classmethod
    def answer(cls, site: Site, request: DiffuseRequest) -> Sum:
        return Sum(Table.of(cls.vector(site, request), SUM_PRECISION).values)

    def check_vector(self, board: Board, values: FloatArray, site: str) -> None:
        search = board.get(Search)
        total = search.as_matrix(values)
        if search.known:
            rows = float(search.known[0][1][:, 0].sum())  # of all sites
        else:  # the first direction is 1: these are column sums, and the shares of a row sum to 1
            first = total.sum(axis=1) if search.asks_gram else total[:, 0]
            rows = float(first.sum())
            if np.any(first < -SUM_SLACK * max(rows, 1.0)) or rows > MOST_ROWS:
                raise MessageError("sums of affinities below zero, or of more rows than anybody has", site)
        longest = 1.0 if search.asks_gram else product_sensitivity(search.directions)
        if float(np.linalg.norm(total)) > (1 + SUM_SLACK) * max(rows, 0.0) * longest:
            raise MessageError(f"products larger than those of {rows:.6g} rows can be", site)

    def note_sites(self, board: Board, sites: Sequence[str]) -> Board:
        return board.put(replace(board.get(Search), answered=digest_names(sites)))

    def take(self, board: Board, total: FloatArray, noise: float) -> Board:
        search, groups = board.get(Search), _groups(board)
        search, wanted = replace(search, exchanges=search.exchanges + 1), self._wanted(board)
        if search.known and search.answered != search.known_by:
            # products of other sites than before do not go together: ask again for what was found of the eigenvectors
            directions = self._approximate(board, search).as_directions()
            return board.put(replace(search, known=(), directions=_round_directions(directions)))
        if search.asks_gram:
            return self._embed(board, solve_gram(search.as_matrix(total), wanted + NEXT_DIRECTIONS, groups))
        known = (*search.known, (search.directions, search.as_matrix(total)))
        search = replace(search, known=known, known_by=search.answered)
        found = self._approximate(board, search)
        directions = found.next_directions(wanted, self.tol)
        if directions.shape[1] == 0 or search.exchanges >= self.max_exchanges:
            return self._embed(board, found)
        return board.put(replace(search, directions=_round_directions(directions)))

    def _approximate(self, board: Board, search: Search) -> Eigenvectors:
        """Eigenvectors of what is known so far."""
        wanted = self._wanted(board) + NEXT_DIRECTIONS
        return approximate_eigenvectors(search.known, wanted, _groups(board), board.get(StandIns).affinities)

    def _embed(self, board: Board, found: Eigenvectors) -> Board:
        """Publish the embedding, and choose the start of the rounds on rows that stand in for those of the sites."""
        embedding = Embedding.of(found.cluster_projection(self.settings.n_clusters), found.values, self.settings)
        rows = make_embedded_rows(embed_affinities(board.get(StandIns).affinities, embedding.projection))
        start = self.settings.start(rows, np.random.RandomState(self.seed), self.workers)
        board = board.drop(StandIns, Groups, Search).put(embedding, embedding.space)
        return self.protocol.begin(board, self.settings, start, rows)

    def _wanted(self, board: Board) -> int:
        """Eigenvectors that must be good."""
        return min(self.settings.n_clusters, board.get(Anchors).graph.n_columns)


@dataclass(frozen=True, eq=False)
class Ties(Entry):
    """What was counted between parts so far: the sum over exchanges, as a vector, and how many there were."""

    counts: FloatArray
    exchanges: int
    noise: float  # standard deviation of the noise in a count of one exchange


@dataclass(frozen=True, eq=False)
class TiesRequest:
    """Ask for the Gram matrix of the shares that rows have in these anchors, of all views together."""

    graph: AnchorGraph  # its arrays are rounded


@dataclass(frozen=True)
class CountTies(SumPhase[TiesRequest]):
    """With noise: which parts of clusters have rows between them, and the clusters that heat makes of the parts.

    A row gives shares z to the parts that are nearest to it. They are not negative and sum to 1 (or 0), so that what it
    adds to the Gram matrix, z z^T, is no longer than |z|^2 <= 1, and its upper half no longer than that; of two rows
    nothing is negative, and the difference is at most sqrt(2). This holds whatever the parts are, as long as no
    distance overflows, which a site checks before it reads a row. What the server makes of the counts costs no more.

    The same sum is asked for several times, and the mean is taken: with its noise, that is one sum with the budget of
    several rounds. Parts that are not near each other have no rows between them: what is counted there is noise.
    """

    name: ClassVar[str] = "ties"
    acute: ClassVar[bool] = True  # nothing is negative

    settings: Settings
    scale: float  # how fast ties weaken with the distance
    seed: int
    noise: Noise  # the budget, and the rounds that share it
    workers: int = 1

    def begin(self, board: Board) -> Board:
        if board.has(Embedding) or self.noise.affords(self, board):
            return board
        for ties in board.find(Ties):
            return self._embed(board, ties)
        raise ValueError("The privacy budget is spent before rows between parts were counted: answers were lost.")

    resume = begin

    def is_done(self, board: Board, exchanges: int) -> bool:
        return board.has(Embedding)

    def request(self, board: Board) -> TiesRequest:
        return TiesRequest(round_arrays(self._anchors(board).graph, PRECISION))

    def size(self, board: Board) -> int:
        count = self._anchors(board).graph.n_anchors
        return count * (count + 1) // 2

    @staticmethod
    def vector(site: Site, request: TiesRequest) -> FloatArray:
        rows, graph = site.rows(), read_arrays(request.graph)
        shares = tie_rows(graph, rows).views.tables[0][:, -graph.n_anchors :]
        return upper_half(gram(shares, rows.sample_weight))

    @staticmethod
    def sensitivity(request: TiesRequest, size: int, neighbours: Neighbours) -> float:
        graph = read_arrays(request.graph)
        reach = np.max([np.abs(part).max(initial=0.0) for part in graph.anchors], initial=0.0)
        bounded = reach <= MOST_REACH and 0 < graph.scale <= MOST_SCALE
        if not (bounded and graph.joint_weight == 1 and not graph.parts):
            raise MessageError(UNBOUNDED_TIES)
        return sum_sensitivity(1.0 + SLACK, neighbours, nonnegative=True)

    def take(self, board: Board, total: FloatArray, noise: float) -> Board:
        before = next(board.find(Ties), Ties(np.zeros(len(total)), 0, noise))
        ties = Ties(before.counts + total, before.exchanges + 1, noise)
        if ties.exchanges < count_exchanges(self.noise.rounds):
            return self.begin(board.put(ties))
        return self._embed(board, ties)

    def _anchors(self, board: Board) -> Anchors:
        """The centres of the parts, to the nearest of which rows are tied; where noise hides all they are the same."""
        return self._tie(round_points(board.get(FinalParameters).parameters.centers))

    def _tie(self, parts: Sequence[FloatArray]) -> Anchors:
        return Anchors.of(AnchorGraph(tuple(parts), PART_NEIGHBOURS, self.scale, joint_weight=1.0))

    def _embed(self, board: Board, ties: Ties) -> Board:
        """Publish the embedding of the parts, and clusters of them: where a row is follows from the parts near it."""
        found_parts, noise = self._anchors(board).graph.anchors, ties.noise / math.sqrt(ties.exchanges)
        kept, counts = _join_near_parts(np.hstack(found_parts), ties.counts / ties.exchanges, noise)
        anchors = self._tie([part[kept] for part in found_parts])
        graph = anchors.graph
        sizes, n_clusters = counts.sum(axis=1), min(self.settings.n_clusters, len(counts))
        found = solve_gram(counts, n_clusters)
        no_views = np.zeros((graph.n_columns - len(counts), n_clusters))  # rows are tied in all views together alone
        embedding = Embedding.of(np.vstack([no_views, found.projection(n_clusters)]), found.values, self.settings)
        shares = embedding.projection[len(no_views) :]
        rows = make_embedded_rows(embed_affinities(np.eye(len(counts)), shares), sizes)
        settings = replace(self.settings, n_clusters=n_clusters)
        start = settings.start(rows, np.random.RandomState(self.seed), self.workers, halves=False)
        with Passes(rows, n_clusters, self.workers) as scan:
            progress, _ = minimise(
                scan.statistics, start, learn_weights=settings.learn_weights, max_iter=PART_PASSES, tol=TOL
            )
            memberships = scan.assign(progress.parameters)[0]
        weights = sizes[:, None] * memberships
        total = np.maximum(weights.sum(axis=0), 1e-300)
        means = ClusterMeans(tuple([weights.T @ part / total[:, None] for part in graph.anchors]), total)
        final = FinalModel(Broadcast.of(progress.parameters)), FinalParameters(progress.parameters)
        return board.drop(Ties).put(anchors, embedding, embedding.space, means, *final)


def _join_near_parts(centers: FloatArray, counts: FloatArray, noise: float) -> tuple[IntArray, FloatArray]:
    """Parts that have rows, and the table of rows between them without what noise says of parts that are far apart.

    `counts` has the upper half of the table, with noise of this standard deviation. A row between two parts is tied to
    both, so that each is among the nearest of the other: twice as many as a row is tied to are looked at. A part whose
    rows are too few to be told from noise would be a cluster of its own, because nothing ties it to others.
    """
    table = from_upper_half(counts)
    squares = np.square(centers).sum(axis=1)
    ranks = np.argsort(np.argsort(squares[:, None] + squares - 2 * centers @ centers.T, axis=1), axis=1)
    near = (ranks <= 2 * PART_NEIGHBOURS) & (ranks.T <= 2 * PART_NEIGHBOURS)
    table = np.where(near, np.maximum(table, 0.0), 0.0)
    rows = table.sum(axis=1)
    kept = np.flatnonzero(rows > SURE_ROWS * noise * np.sqrt(near.sum(axis=1)))
    kept = kept if len(kept) else np.array([np.argmax(rows)])
    table = table[np.ix_(kept, kept)]
    # a part that was tied to others that are left out is tied to itself
    return kept, np.asarray(table + np.diag(np.where(table.sum(axis=1) > 0, 0.0, 1.0)))


def _groups(board: Board) -> AnchorGroups:
    return board.get(Groups).groups


def _round_directions(directions: FloatArray) -> FloatArray:
    """Directions, of shape (m, q), as sites read them."""
    return round_as_sent(directions.T, DIRECTION_PRECISION).T


def gram_is_smaller(columns: int, directions: int) -> bool:
    """Whether the whole Gram matrix costs a site fewer bytes than products with so many directions do."""
    one = columns * directions * (SENT_BYTES + RECEIVED_BYTES)
    return columns * (columns + 1) // 2 * SENT_BYTES < USUAL_EXCHANGES * one
