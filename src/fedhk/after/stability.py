"""How sure clusters are: whether halves of the rows of each site find them, and models from which a site is left out.

Many base models are fitted at once: an exchange carries the centres of all of them, and the sums of all come back. Rows
are halved by weights, so that no site makes a second copy. Every base model has two starts, one near the clusters that
were found and one that knows nothing of them; the better one counts. So clusters that any other split would serve as
well do not come back.

Two halves share no row, so that what both find is no accident of the rows: a resample has most of its rows in common
with all rows, and finds splits of mere noise again that happen to suit them. For the same reason each half has an
embedding of its own where the model embeds rows (`fedhk.after.own_embeddings`).
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np

from fedhk._typing import BoolArray, FloatArray, IntArray
from fedhk.after.columns import MOST_NUMBERS, ColumnSum, check_counts
from fedhk.after.own_embeddings import (
    ANCHOR_PASSES,
    OwnSpace,
    OwnTies,
    embed_means,
    embed_rows,
    move_points,
    place_means,
    project_rows,
    sum_nearest,
    sum_ties,
)
from fedhk.after.run import Answer, Answered, ask_sites, find_sites
from fedhk.after.tables import PrintedTable
from fedhk.data.checks import check_count
from fedhk.data.frames import pandas
from fedhk.embedding.affinity import AnchorGraph
from fedhk.embedding.diffusion import EmbeddedModel
from fedhk.embedding.map import DiffusionMap
from fedhk.embedding.options import Diffusion
from fedhk.embedding.spectrum import NEXT_DIRECTIONS
from fedhk.errors import MessageError, Rule
from fedhk.federation.board import Board, Entry, Shared
from fedhk.federation.engines.base import RemoteEngine
from fedhk.federation.entries import Broadcast
from fedhk.federation.phases.base import Phase
from fedhk.federation.placed import PlacedSite
from fedhk.model.cluster_summary import ClusterSummary, summarise_clusters
from fedhk.model.parameters import LEAST_SHARE, Parameters
from fedhk.model.passes import Passes, own_threads
from fedhk.model.rows import Rows, split_joint
from fedhk.privacy.mechanism import AFTER, SecureSummation
from fedhk.starts.kmeans import lloyd, plus_plus
from fedhk.summary.charts import BINS
from fedhk.summary.words import join_names, number, plural

# Rounds of a base model at most, and the change of its objective at which it has settled: labels hardly change then.
MOST_ROUNDS, SETTLED = 12, 1e-3

# Rows that a start is drawn on, for each cluster, passes of k-means over them, and tries, of which the best counts.
START_ROWS, START_PASSES, START_TRIES = 60, 10, 3

# Starts of each base model: one near the clusters that were found, one that knows only the spread of all rows.
STARTS = 2

# Mean Jaccard from which a cluster is called stable (Hennig 2007). How often splits of mere noise reach it
# between halves is in benchmarks/results/stability.md.
STABLE = 0.75

HALVES = 2

# Base models with all their starts that a site refits at most: twenty times as many as by default.
MOST_MODELS = 2000

# Refusals of a site.
OTHER_MODELS = Rule("the question has more or fewer centres than halves of rows")
TOO_MANY_MODELS = Rule("the question asks for more models than anybody needs")
ONE_SITE = Rule("this site gives masked sums, and a model without one site would show the sums of that site")

# Clouds of rows without clusters, whose clusters are halved as those that were found are: one more would have a larger
# Jaccard than all of them with a probability of one in twenty. Pairs of halves of each, its rows and cells at most.
CLOUDS, CLOUD_PAIRS, CLOUD_ROWS, CLOUD_CELLS = 19, 4, 2000, 2 * 10**6

# Pairs of halves of each cloud, and its rows, where rows are embedded, which takes longer.
EMBEDDED_PAIRS, EMBEDDED_ROWS = 1, 400

# Rows of two clusters are often together if they are so at least this often, compared with rows of one of them.
OFTEN = 1 / 3


@dataclass(frozen=True, eq=False)
class SpreadRequest:
    """Ask how large clusters are and how far rows spread in them."""

    model: Broadcast

    @property
    def n_clusters(self) -> int:
        """Number of clusters."""
        return int(self.model.centers.read().shape[0])


@dataclass(frozen=True, eq=False)
class ClusterSpread(Entry):
    """How large clusters are and how far rows spread in them, over all sites."""

    summary: ClusterSummary


@dataclass(frozen=True)
class SumSpread(ColumnSum[SpreadRequest]):
    """How large clusters are and how far rows spread in them: what starts of base models are drawn from."""

    name: ClassVar[str] = AFTER + "spread"
    questions: ClassVar[tuple[str, ...]] = ("stability",)

    parameters: Parameters

    def request(self, board: Board) -> SpreadRequest:
        return SpreadRequest(Broadcast.of(self.parameters))

    def size(self, board: Board) -> int:
        return int(self.parameters.n_clusters + 2 * np.hstack(self.parameters.centers).shape[1])

    @staticmethod
    def vector(site: PlacedSite, request: SpreadRequest) -> FloatArray:  # type: ignore[override]
        rows, labels = site.view_rows(), site.labels()[site.shown()]
        return summarise_clusters(rows, request.model.parameters(rows.widths), labels).to_array()

    def check_vector(self, board: Board, values: FloatArray, site: str) -> None:
        check_counts(values, site)

    def take(self, board: Board, total: FloatArray, noise: float) -> Board:
        summary = ClusterSummary.from_array(np.maximum(total, 0.0), self.parameters.n_clusters)
        return board.put(ClusterSpread(summary))


@dataclass(frozen=True, eq=False)
class DrawnRows:
    """Which rows each of several base models is of: a half, or all but those of one site."""

    draws: IntArray  # (models,): the number of the half; two in a row share no row
    left_out: tuple[str, ...]  # (models,): the site without weight; "" where rows are halved
    seed: int

    def __post_init__(self) -> None:
        if self.draws.shape != (len(self.left_out),):
            raise MessageError(OTHER_MODELS)
        if len(self.draws) > MOST_MODELS:
            raise MessageError(TOO_MANY_MODELS)

    def weights(self, model: int, site: PlacedSite) -> FloatArray:
        """Weights of a site's rows in a base model: 1 in its half and 0 in the other, or all or none.

        A site elsewhere adds a secret to the seed: from the sums of many halves that it knows, a server could compute
        single rows.
        """
        n_rows = len(site.shown())
        if self.left_out[model]:
            if site.masked:  # all sums without those of all other sites are its own
                raise MessageError(ONE_SITE)
            return np.full(n_rows, float(self.left_out[model] != site.name))
        pair, half = divmod(int(self.draws[model]), HALVES)
        own = zlib.crc32(site.name.encode()), *site.secret.encode()
        order = np.random.default_rng([self.seed, pair, *own]).permutation(n_rows)
        # where rows are odd in number, which half has one more is drawn, too
        return np.asarray((order + pair) % HALVES == half, np.float64)


@dataclass(frozen=True, eq=False, kw_only=True)
class BatchRequest(DrawnRows):
    """Centres of several base models, and which rows each is of."""

    model: Broadcast  # what all of them have in common
    centers: FloatArray  # (models, c, d), views side by side

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.centers.ndim != 3 or len(self.centers) != len(self.draws):
            raise MessageError(OTHER_MODELS)

    @property
    def n_clusters(self) -> int:
        """Number of clusters."""
        return int(self.centers.shape[1])

    def rows(self, model: int, site: PlacedSite) -> Rows:
        """Return the rows of a site as a base model reads them."""
        for own in site.board.find(OwnMaps):
            return site.derive(own, partial(own.embed, site))[int(self.draws[model])]
        return site.model_rows()

    def parameters(self, model: int, widths: Sequence[int]) -> Parameters:
        """The parameters of a base model."""
        return replace(self.model.parameters(widths), centers=split_joint(self.centers[model], widths))


@dataclass(frozen=True, eq=False)
class BaseModels(Entry):
    """Where the base models stand."""

    centers: FloatArray  # (models, c, d)
    objectives: FloatArray  # (models,), at the centres before
    settled: bool = False


@dataclass(frozen=True)
class RefitModels(ColumnSum[BatchRequest]):
    """Rounds of all base models at once."""

    name: ClassVar[str] = AFTER + "refits"
    questions: ClassVar[tuple[str, ...]] = ("stability",)

    parameters: Parameters
    n_resamples: int
    sites: tuple[str, ...]  # each left out once
    seed: int

    @property
    def n_models(self) -> int:
        """Base models with all their starts."""
        return STARTS * (self.n_resamples + len(self.sites))

    @property
    def bases(self) -> DrawnRows:
        """Which rows each base model is of, whatever its start."""
        left_out = ("",) * self.n_resamples + self.sites
        return DrawnRows(np.arange(len(left_out)), left_out, self.seed)

    @property
    def width(self) -> int:
        """Features of all views."""
        return sum(part.shape[1] for part in self.parameters.centers)

    def begin(self, board: Board) -> Board:
        for own in board.find(OwnStarts):
            return board.put(BaseModels(own.centers, np.full(self.n_models, np.inf)))
        summary, joint = board.get(ClusterSpread).summary, np.hstack(self.parameters.centers)
        factors = np.repeat(self.parameters.view_factors, [part.shape[1] for part in self.parameters.centers])
        starts = [
            _draw_start(
                joint,
                summary,
                np.sqrt(factors),
                np.random.default_rng([self.seed, model]),
                informed=model % STARTS == 0,
            )
            for model in range(self.n_models)
        ]
        return board.put(BaseModels(np.stack(starts), np.full(self.n_models, np.inf)))

    def is_done(self, board: Board, exchanges: int) -> bool:
        return exchanges >= MOST_ROUNDS or board.get(BaseModels).settled

    def request(self, board: Board) -> BatchRequest:
        draws = np.arange(self.n_models) // STARTS
        drawn = self.bases
        names = tuple(drawn.left_out[draw] for draw in draws)
        model, centers = Broadcast.of(self.parameters), board.get(BaseModels).centers
        return BatchRequest(draws, names, self.seed, model=model, centers=centers)

    def size(self, board: Board) -> int:
        return self.n_models * (2 * self.parameters.n_clusters * self.width + 1)

    @staticmethod
    def vector(site: PlacedSite, request: BatchRequest) -> FloatArray:  # type: ignore[override]
        found, c = [], request.centers.shape[1]
        for first in range(0, len(request.centers), STARTS):  # starts of one base model are of the same rows
            rows = request.rows(first, site)
            weighted = replace(rows, sample_weight=request.weights(first, site))
            with Passes(weighted, c, site.workers) as scan:
                for model in range(first, first + STARTS):
                    sums = scan.statistics(request.parameters(model, rows.widths))
                    weights = [np.broadcast_to(w, n.shape) for w, n in zip(sums.weights, sums.numerators, strict=True)]
                    found += [
                        np.hstack(sums.numerators).ravel(),
                        np.hstack(weights).ravel(),
                        np.array([sums.objective]),
                    ]
        return np.concatenate(found)

    def take(self, board: Board, total: FloatArray, noise: float) -> Board:
        before, cells = board.get(BaseModels), self.parameters.n_clusters * self.width
        numerators, weights, objectives = np.split(total.reshape(self.n_models, -1), [cells, 2 * cells], axis=1)
        least = np.maximum(LEAST_SHARE, 1e-9) * weights.max(axis=1, keepdims=True)
        old = before.centers.reshape(self.n_models, cells)
        moved = np.divide(numerators, weights, out=old.copy(), where=weights > least)
        change = np.abs(before.objectives - objectives[:, 0])
        settled = bool(np.all(change <= SETTLED * np.abs(objectives[:, 0])))
        return board.put(BaseModels(moved.reshape(before.centers.shape), objectives[:, 0], settled))


def _draw_start(
    centers: FloatArray, summary: ClusterSummary, scale: FloatArray, rng: np.random.Generator, *, informed: bool
) -> FloatArray:
    """Centres from k-means on rows that are drawn: around the centres that were found, or with the spread of all rows.

    Views weigh by `scale`.
    """
    c, size = len(centers), START_ROWS * len(centers)
    shares = summary.shares if summary.counts.sum() > 0 else np.full(c, 1.0 / c)
    if informed:
        drawn, variance = centers[rng.choice(c, size, p=shares)], summary.variance
    else:
        mean = shares @ centers
        drawn, variance = (
            np.broadcast_to(mean, (size, len(mean))),
            summary.variance + shares @ np.square(centers - mean),
        )
    points = (drawn + np.sqrt(variance) * rng.standard_normal(drawn.shape)) * scale
    state, even = np.random.RandomState(int(rng.integers(2**31))), np.ones(size)
    tries = [lloyd(points, even, plus_plus(points, even, c, state), START_PASSES) for _ in range(START_TRIES)]
    found = min(tries, key=lambda one: one[2])[0]
    return np.asarray(found / np.where(scale > 0, scale, 1.0))


def _place(site: PlacedSite, request: BatchRequest, model: int) -> IntArray:
    """Find the cluster of a base model that each row of a site is in."""
    rows = request.rows(model, site)
    with Passes(rows, request.n_clusters, site.workers) as scan:
        return scan.assign(request.parameters(model, rows.widths))[1]


# ------------------------------------------------------------------------------------------------------ own embeddings


@dataclass(frozen=True, eq=False, kw_only=True)
class PointsRequest(DrawnRows):
    """Ask for the means of the rows of each half that are near to its points."""

    points: FloatArray  # (halves, p, d), views side by side
    bases: tuple[FloatArray, ...]  # (d_h, q_h) per view


@dataclass(frozen=True, eq=False)
class OwnPoints(Entry):
    """Where the points of each half are, and how many rows are near to them."""

    points: FloatArray  # (halves, p, d)
    counts: FloatArray  # (halves, p)
    passes: int = 0


@dataclass(frozen=True)
class FindOwnAnchors(ColumnSum[PointsRequest]):
    """Find anchors for each half: means of its own rows."""

    name: ClassVar[str] = AFTER + "anchors"
    questions: ClassVar[tuple[str, ...]] = ("stability",)

    space: OwnSpace
    drawn: DrawnRows

    def begin(self, board: Board) -> Board:
        summary = board.get(ClusterSpread).summary
        count = self.space.count_anchors(summary.counts.sum() / HALVES)
        halves, width = len(self.drawn.draws), sum(self.space.widths)
        if halves * count * (1 + 2 * width) > MOST_NUMBERS:
            raise ValueError(
                f"n_resamples is too large for an embedding of each half: {halves} halves and sites with {count} "
                f"anchors of {width} features have too many numbers. Use fewer."
            )
        rngs = [np.random.default_rng([self.drawn.seed, half]) for half in range(halves)]
        points = np.stack([self.space.draw_points(self.space.anchors, count, rng) for rng in rngs])
        return board.put(OwnPoints(points, np.zeros((halves, count))))

    def is_done(self, board: Board, exchanges: int) -> bool:
        return exchanges >= ANCHOR_PASSES

    def request(self, board: Board) -> PointsRequest:
        points, drawn = board.get(OwnPoints).points, self.drawn
        return PointsRequest(drawn.draws, drawn.left_out, drawn.seed, points=points, bases=self.space.bases)

    def size(self, board: Board) -> int:
        halves, count, width = board.get(OwnPoints).points.shape
        return int(halves * count * (1 + 2 * width))

    @staticmethod
    def vector(site: PlacedSite, request: PointsRequest) -> FloatArray:  # type: ignore[override]
        rows = project_rows(site.view_rows(), request.bases)
        sums = [sum_nearest(rows, request.weights(m, site), points) for m, points in enumerate(request.points)]
        return np.concatenate([part.ravel() for part in sums])

    def take(self, board: Board, total: FloatArray, noise: float) -> Board:
        own = board.get(OwnPoints)
        before, passes = own.points, own.passes + 1
        halves, count, _ = before.shape
        rng = np.random.default_rng([self.drawn.seed, passes])
        moved = [move_points(*pair, rng) for pair in zip(before, total.reshape(halves, count, -1), strict=True)]
        points, counts = zip(*moved, strict=True)
        return board.put(OwnPoints(np.stack(points), np.stack(counts), passes))


@dataclass(frozen=True, eq=False, kw_only=True)
class OwnTiesRequest(DrawnRows):
    """Ask how the rows of each half are tied to its anchors."""

    graphs: tuple[AnchorGraph, ...]
    directions: tuple[FloatArray, ...]  # (m, q) of each half
    bases: tuple[FloatArray, ...]


@dataclass(frozen=True, eq=False)
class AllOwnTies(Entry):
    """What is known of the embedding of each half before its rows are asked."""

    ties: tuple[OwnTies, ...]


@dataclass(frozen=True, eq=False)
class OwnStarts(Entry):
    """Where base models start, among the embedded anchors of their halves."""

    centers: FloatArray  # (models, c, k)


@dataclass(frozen=True, eq=False)
class OwnMaps(Shared):
    """The embeddings of the halves."""

    maps: tuple[DiffusionMap, ...]
    bases: tuple[FloatArray, ...]

    def embed(self, site: PlacedSite) -> list[Rows]:
        """Embed the rows of a site with each."""
        rows = project_rows(site.view_rows(), self.bases)
        return [embed_rows(own, rows) for own in self.maps]


@dataclass(frozen=True)
class TieOwnRows(ColumnSum[OwnTiesRequest]):
    """Find the directions in which heat stays longest between the rows of each half."""

    name: ClassVar[str] = AFTER + "ties"
    questions: ClassVar[tuple[str, ...]] = ("stability",)

    space: OwnSpace
    drawn: DrawnRows

    def begin(self, board: Board) -> Board:
        own, seed = board.get(OwnPoints), self.drawn.seed
        pairs = enumerate(zip(own.points, own.counts, strict=True))
        return board.put(AllOwnTies(tuple([OwnTies.of(self.space, *pair, seed + half) for half, pair in pairs])))

    def request(self, board: Board) -> OwnTiesRequest:
        ties, drawn = board.get(AllOwnTies).ties, self.drawn
        graphs, directions = tuple([one.graph for one in ties]), tuple([one.directions for one in ties])
        bases = self.space.bases
        return OwnTiesRequest(
            drawn.draws, drawn.left_out, drawn.seed, graphs=graphs, directions=directions, bases=bases
        )

    def size(self, board: Board) -> int:
        return sum(sum(self._sizes(one)) for one in board.get(AllOwnTies).ties)

    @staticmethod
    def _sizes(ties: OwnTies) -> tuple[int, int]:
        columns, directions = ties.directions.shape
        return columns, directions**2

    @staticmethod
    def vector(site: PlacedSite, request: OwnTiesRequest) -> FloatArray:  # type: ignore[override]
        rows = project_rows(site.view_rows(), request.bases)
        asked = enumerate(zip(request.graphs, request.directions, strict=True))
        return np.concatenate([sum_ties(rows, request.weights(half, site), *pair) for half, pair in asked])

    def take(self, board: Board, total: FloatArray, noise: float) -> Board:
        ties, seed = board.get(AllOwnTies).ties, self.drawn.seed
        ends = np.cumsum([self._sizes(one) for one in ties])
        parts = np.split(total, ends[:-1])
        maps, starts = [], []
        for half, one in enumerate(ties):
            sums, inner = parts[2 * half : 2 * half + 2]
            found = one.make_map(sums, inner, self.space.n_clusters)
            maps.append(found)
            state = np.random.RandomState(seed + half)
            starts += _start_among(embed_means(found, one.means), one, place_means(self.space, one.means), state)
        return board.drop(OwnPoints, AllOwnTies).put(
            OwnMaps(tuple(maps), self.space.bases), OwnStarts(np.stack(starts))
        )


def _start_among(points: FloatArray, ties: OwnTies, labels: IntArray, state: np.random.RandomState) -> list[FloatArray]:
    """Find centres among embedded anchors: near the clusters that were found, and by k-means that knows none."""
    weight = ties.counts
    c = points.shape[1] - NEXT_DIRECTIONS
    known = state.permutation(len(points))[np.arange(c) % len(points)]
    informed = points[known]
    for k in range(c):
        own = labels == k
        informed[k] = np.average(points[own], axis=0, weights=weight[own]) if own.any() else informed[k]
    tries = [lloyd(points, weight, plus_plus(points, weight, c, state), START_PASSES) for _ in range(START_TRIES)]
    return [lloyd(points, weight, informed, START_PASSES)[0], min(tries, key=lambda one: one[2])[0]]


@dataclass(frozen=True, eq=False)
class Overlaps(Entry):
    """Rows by the cluster that was found and that of each base model, and by those of two halves; (.., c, c)."""

    tables: FloatArray
    halves: FloatArray


@dataclass(frozen=True)
class CountOverlaps(ColumnSum[BatchRequest]):
    """Which rows are together in base models, by the clusters that were found, and by those of the other half."""

    name: ClassVar[str] = AFTER + "overlaps"
    questions: ClassVar[tuple[str, ...]] = ("stability",)

    refits: RefitModels

    def request(self, board: Board) -> BatchRequest:
        asked, found = self.refits.request(board), board.get(BaseModels)
        # of each base model the better start
        best = found.objectives.reshape(-1, STARTS).argmin(axis=1) + STARTS * np.arange(self.refits.n_models // STARTS)
        left_out = tuple(asked.left_out[model] for model in best)
        return replace(asked, centers=found.centers[best], draws=asked.draws[best], left_out=left_out)

    @property
    def _n_tables(self) -> tuple[int, int]:
        return self.refits.n_models // STARTS, self.refits.n_resamples // HALVES

    def size(self, board: Board) -> int:
        return sum(self._n_tables) * self.refits.parameters.n_clusters**2

    @staticmethod
    def vector(site: PlacedSite, request: BatchRequest) -> FloatArray:  # type: ignore[override]
        c, found = request.centers.shape[1], [_place(site, request, m) for m in range(len(request.centers))]
        own = site.labels()[site.shown()]
        pairs = [(own, labels) for labels in found]
        halved = [labels for labels, site_name in zip(found, request.left_out, strict=True) if not site_name]
        pairs += zip(halved[::HALVES], halved[1::HALVES], strict=True)
        return np.concatenate([np.bincount(a * c + b, minlength=c * c) for a, b in pairs]).astype(np.float64)

    def check_vector(self, board: Board, values: FloatArray, site: str) -> None:
        check_counts(values, site)

    def take(self, board: Board, total: FloatArray, noise: float) -> Board:
        c = self.refits.parameters.n_clusters
        tables = total.reshape(-1, c, c)
        return board.put(Overlaps(*np.split(tables, [self._n_tables[0]])))


@dataclass(frozen=True, eq=False)
class CertaintyRequest:
    """Ask how often rows stay in their cluster, by their certainty; `places` is what each half has in its place."""

    models: BatchRequest
    places: IntArray  # (halves, c)

    @property
    def n_clusters(self) -> int:
        """Number of clusters."""
        return self.models.n_clusters


@dataclass(frozen=True, eq=False)
class CertaintyCounts(Entry):
    """Rows by certainty, in ten bins, and how often they stay in their cluster in halves, on average, summed."""

    rows: FloatArray
    stayed: FloatArray


@dataclass(frozen=True)
class CountStays(ColumnSum[CertaintyRequest]):
    """How often rows of some certainty stay in their cluster when halves of the rows are clustered anew."""

    name: ClassVar[str] = AFTER + "stays"
    questions: ClassVar[tuple[str, ...]] = ("stability",)

    overlaps: CountOverlaps

    def request(self, board: Board) -> CertaintyRequest:
        asked, halves = self.overlaps.request(board), self.overlaps.refits.n_resamples
        models = replace(
            asked, centers=asked.centers[:halves], draws=asked.draws[:halves], left_out=asked.left_out[:halves]
        )
        return CertaintyRequest(models, share_rows(board.get(Overlaps).tables[:halves]).argmax(axis=2))

    def size(self, board: Board) -> int:
        return 2 * BINS

    @staticmethod
    def vector(site: PlacedSite, request: CertaintyRequest) -> FloatArray:  # type: ignore[override]
        rows, asked = site.model_rows(), request.models
        with Passes(rows, asked.centers.shape[1], site.workers) as scan:
            memberships, labels, _ = scan.assign(site.model.parameters)
        stayed = np.zeros(rows.n_rows)
        for model in range(len(asked.centers)):
            stayed += _place(site, asked, model) == request.places[model][labels]
        place = np.minimum((memberships.max(axis=1, initial=0.0) * BINS).astype(np.intp), BINS - 1)
        share = stayed / max(len(asked.centers), 1)
        return np.concatenate([np.bincount(place, weight, minlength=BINS) for weight in (None, share)]).astype(
            np.float64
        )

    def check_vector(self, board: Board, values: FloatArray, site: str) -> None:
        check_counts(values, site)

    def take(self, board: Board, total: FloatArray, noise: float) -> Board:
        return board.put(CertaintyCounts(*np.split(total, 2)))


def share_rows(tables: FloatArray) -> FloatArray:
    """Jaccard of all pairs of clusters, from tables of rows in both, (.., c, c)."""
    union = tables.sum(axis=-1, keepdims=True) + tables.sum(axis=-2, keepdims=True) - tables
    return np.asarray(np.divide(tables, union, out=np.zeros_like(tables), where=union > 0))


def find_jaccard(tables: FloatArray) -> FloatArray:
    """Jaccard of each cluster with the most similar one of each base model, (models, c); NaN of an empty cluster.

    Rows of a table are the clusters that were found, columns those of the base model.
    """
    return np.where(tables.sum(axis=2) > 0, share_rows(tables).max(axis=2), np.nan)


def compare_halves(tables: FloatArray, halves: FloatArray) -> FloatArray:
    """Jaccard of the two clusters that two halves have in the place of each cluster, (pairs, c).

    `tables` are those of the halves with the clusters that were found, two in a row of each pair.
    """
    place = share_rows(tables).argmax(axis=2).reshape(len(halves), HALVES, -1)
    shares = share_rows(halves)
    found = shares[np.arange(len(halves))[:, None], place[:, 0], place[:, 1]]
    return np.where(tables[::HALVES].sum(axis=2) > 0, found, np.nan)


def _halve_clouds(parameters: Parameters, summary: ClusterSummary, seed: int, space: OwnSpace | None) -> float:
    """Return the largest Jaccard between halves that clusters of rows without clusters have.

    These rows are of one normal distribution with the spread within and between the clusters that were found. If they
    are fewer than there are rows, what the Jaccard lacks to 1 is scaled: a border between clusters is known the better,
    the more rows there are, with the root of their number. Halves are embedded where those of the rows are.
    """
    c, total = parameters.n_clusters, summary.counts.sum()
    if c < 2 or total < HALVES * c:
        return 0.0
    joint = np.hstack(parameters.centers)
    scale = np.sqrt(np.repeat(parameters.view_factors, [part.shape[1] for part in parameters.centers]))
    most, pairs = (CLOUD_ROWS, CLOUD_PAIRS) if space is None else (EMBEDDED_ROWS, EMBEDDED_PAIRS)
    count = int(min(total, most, max(CLOUD_CELLS // len(scale), HALVES * START_ROWS * c)))
    middle = summary.shares @ joint
    between = (joint - middle) * np.sqrt(summary.shares)[:, None]
    rng, found = np.random.default_rng([seed, CLOUDS]), []
    state = np.random.RandomState(int(rng.integers(2**31)))

    def split(rows: FloatArray, own: BoolArray) -> IntArray:
        """Find clusters of some rows, and place all rows in them."""
        points = rows * scale if space is None else space.embed_alone(rows + middle, own, rng)
        return _nearest(points, _find_centers(points[own], c, state))

    for _ in range(CLOUDS):
        rows = rng.standard_normal((count, len(scale))) * np.sqrt(summary.variance)
        rows += rng.standard_normal((count, c)) @ between
        labels, tables, halves = split(rows, np.full(count, True)), [], []
        for _ in range(pairs):
            half = rng.permutation(count) % HALVES
            parts = [split(rows, half == one) for one in range(HALVES)]
            tables += [_cross(labels, part, c) for part in parts]
            halves.append(_cross(parts[0], parts[1], c))
        found.append(np.nanmax(compare_halves(np.stack(tables), np.stack(halves)).mean(axis=0)))
    return float(1.0 - (1.0 - max(found)) * np.sqrt(count / total))


def _find_centers(rows: FloatArray, c: int, state: np.random.RandomState) -> FloatArray:
    """Find centres by k-means, the better of some tries."""
    even = np.ones(len(rows))
    tries = [lloyd(rows, even, plus_plus(rows, even, c, state), HALVES * START_PASSES) for _ in range(STARTS)]
    return min(tries, key=lambda one: one[2])[0]


def _nearest(rows: FloatArray, centers: FloatArray) -> IntArray:
    """Return the nearest centre of each row."""
    return np.asarray((np.square(centers).sum(axis=1) - 2 * rows @ centers.T).argmin(axis=1))


def _cross(first: IntArray, second: IntArray, c: int) -> FloatArray:
    """Count rows by two partitions, (c, c)."""
    return np.bincount(first * c + second, minlength=c * c).reshape(c, c).astype(np.float64)


def find_consensus(tables: FloatArray) -> FloatArray:
    """How often two rows are together in base models, by the clusters that they were found in, (c, c)."""
    together = np.einsum("bkl,bml->bkm", tables, tables)
    own = tables.sum(axis=2)
    pairs = own[:, :, None] * own[:, None, :]
    each = np.arange(tables.shape[1])
    together[:, each, each] -= own  # a row is no pair
    pairs[:, each, each] -= own
    shares = np.divide(together, pairs, out=np.full_like(together, np.nan), where=pairs > 0)
    known = ~np.isnan(shares)
    total = np.where(known, shares, 0.0).sum(axis=0)
    return np.asarray(np.divide(total, known.sum(axis=0), out=np.full(total.shape, np.nan), where=known.any(axis=0)))


@dataclass(frozen=True, eq=False)
class Stability(Answered):
    """How sure clusters are.

    Parameters
    ----------
    halves : array of shape (n_resamples / 2, c)
        Jaccard (rows in both over rows in either) of the two clusters that two halves of the rows, which share no row,
        find in the place of each cluster.
    jaccard : array of shape (n_resamples, c)
        Jaccard of each cluster with the most similar one that a half of the rows finds (Hennig).
    mean_halves, mean_jaccard : array of shape (c,)
        Their means; 1 where a cluster always comes back as it is.
    site_jaccard : dict of str to array of shape (c,)
        Jaccard with a model without the rows of a site: small where a cluster is there for that site alone.
    consensus : array of shape (c, c)
        How often two rows are together in halves, by their clusters: 1 within and 0 between where clusters are sure.
    rows : array of shape (c,)
        Rows of each cluster.
    certainty_rows, certainty_kept : array of shape (10,)
        Rows by certainty (largest membership), in bins from 0 to 1, and the share of halves in which such rows stay in
        their cluster: what a certainty is worth. NaN without rows.
    answer : Answer
        What was sent.
    reference : float
        The largest Jaccard between halves that clusters of 19 clouds reach: rows of one normal distribution with the
        spread of all rows.
    """

    halves: FloatArray
    jaccard: FloatArray
    site_jaccard: dict[str, FloatArray]
    consensus: FloatArray
    rows: FloatArray
    certainty_rows: FloatArray
    certainty_kept: FloatArray
    answer: Answer = field(repr=False)
    noise: float = 0.0
    reference: float = 0.0

    @property
    def mean_halves(self) -> FloatArray:
        """Mean of `halves` for each cluster; NaN of an empty one."""
        return np.asarray(self.halves.mean(axis=0))

    @property
    def mean_jaccard(self) -> FloatArray:
        """Mean of `jaccard` for each cluster; NaN of an empty one."""
        return np.asarray(self.jaccard.mean(axis=0))

    @property
    def verdicts(self) -> list[str]:
        """Return a word for each cluster: "stable" if halves agree on it by `enough` on average, else "unstable".

        A cluster without rows is "empty". One that has all rows is "only": all halves agree on it, whatever the rows.
        """
        words = ["empty" if np.isnan(v) else "stable" if v >= self.enough else "unstable" for v in self.mean_halves]
        return ["only" if word == "stable" and words.count("empty") == len(words) - 1 else word for word in words]

    @property
    def enough(self) -> float:
        """Mean of `halves` from which a cluster is called stable: 0.75, or `reference` where that is larger."""
        return max(STABLE, self.reference)

    def frame(self) -> Any:
        """One line for each cluster, as a pandas data frame."""
        found = {"cluster": np.arange(len(self.rows)), "rows": self.rows}
        found |= {"halves": self.mean_halves, "jaccard": self.mean_jaccard}
        without = {f"without {site}": values for site, values in self.site_jaccard.items()}
        return pandas().DataFrame(found | {"verdict": self.verdicts} | without)

    def facts(self) -> dict[str, Any]:
        return {"verdicts": self.verdicts, "halves": self.mean_halves.tolist()}

    def table(self) -> PrintedTable:
        """One line for each cluster."""
        head = ["", "rows", "two halves agree", "Jaccard", "verdict", "least without a site"]
        rows = []
        for k, verdict in enumerate(self.verdicts):
            without = {site: float(values[k]) for site, values in self.site_jaccard.items()}
            site = min(without, key=lambda name: np.nan_to_num(without[name], nan=2.0), default="")
            least = f"{number(without[site], 2)} ({site})" if site else "–"
            means = [number(self.mean_halves[k], 2), number(self.mean_jaccard[k], 2)]
            rows.append([f"cluster {k}", f"{self.rows[k]:,.0f}", *means, verdict, least])
        return PrintedTable("How sure the clusters are", head, rows, self.notes)

    @property
    def notes(self) -> list[str]:
        """What a reader must know."""
        notes = [
            f"Agreement of halves is the mean Jaccard index of {plural(len(self.halves), 'pair')} of halves that share "
            "no row.",
            f"A cluster is stable if halves agree on it by {number(self.enough, 2)} or more. That is {STABLE}, or what "
            f"rows of one normal cloud reach ({number(self.reference, 2)}), whichever is larger.",
            "Jaccard compares each cluster with the nearest one that a half finds (Hennig).",
            "Halves keep the units and view weights of the model. They find centres anew, and an embedding if the "
            "model has one.",
        ]
        inside = np.diag(self.consensus)
        pairs = [
            f"{b} and {a}"
            for a in range(len(self.rows))
            for b in range(a)
            if self.consensus[a, b] > OFTEN * min(inside[a], inside[b])
        ]
        if pairs:
            notes.append(f"Rows of these clusters are often together: {join_names(pairs)}.")
        return notes


def stability(
    model: Any,
    sites: Any = None,
    *,
    engine: RemoteEngine | None = None,
    n_resamples: int = 50,
    leave_sites_out: bool | None = None,
    random_state: int = 0,
    secure: bool | SecureSummation = False,
) -> Stability:
    """Say how sure the clusters of a fitted model are: whether halves of the rows find them, and without single sites.

    Parameters
    ----------
    model : estimator
        A fitted clusterer of FedHK. Units, view weights, heat time and fuzzifier are kept. Centres are looked for anew,
        and so is the embedding of a model that has one.
    sites : dict or list of sites
        As in `fit`; of an estimator for one site, its views. Left out with `engine`.
    engine : fedhk.federation.engines.RemoteEngine or None, default=None
        What leads to sites that have their own rows, as in `fit`. They draw halves of their rows from secrets of their
        own, so that another call with the same `random_state` has other halves.
    n_resamples : int, default=50
        Halves of the rows within sites, in pairs that share no row: an even number. All are refitted together, in few
        exchanges.
    leave_sites_out : bool or None, default=None
        Whether models without each of the sites are fitted, too. None is yes, unless sites elsewhere mask their sums:
        a sum without one site would show the sum of that site, so that they refuse it.
    random_state : int, default=0
        What halves and starts are drawn with.
    secure : bool or fedhk.privacy.SecureSummation, default=False
        Whether the server sees sums over all sites only.

    Returns
    -------
    Stability
        Jaccard per cluster and half, between halves, without each site, and a consensus map of clusters.

    Notes
    -----
    There is none with noise: what one row can change in refitted models has no bound.

    Examples
    --------
    >>> import fedhk
    >>> sites = fedhk.datasets.make_sites(3, 60, n_clusters=3, separation=9, shift=0.2, random_state=0).sites
    >>> model = fedhk.EFKMVC(n_clusters=3, random_state=0).fit(sites)
    >>> fedhk.stability(model, sites, n_resamples=10).verdicts
    ['stable', 'stable', 'stable']
    """
    n_resamples = check_count(n_resamples, "n_resamples", minimum=HALVES)
    if n_resamples % HALVES:
        raise ValueError(f"n_resamples={n_resamples} must be even: halves of the rows come in pairs.")
    seed = check_count(random_state, "random_state", minimum=0)
    hidden = engine is not None and bool(secure)
    if hidden and leave_sites_out:
        raise ValueError("leave_sites_out=True would show the sums of single sites, which secure=True hides.")
    asked = find_sites(model, sites, engine, "stability")
    fitted = model._model
    in_views = parameters = replace(fitted.in_views.parameters.free(), sizes=None)
    space = None
    if isinstance(fitted, EmbeddedModel):
        space = OwnSpace.of(fitted, getattr(model, "diffusion", None) or Diffusion())
        c = parameters.n_clusters
        parameters = replace(fitted.parameters.free(), sizes=None, centers=(np.zeros((c, c + NEXT_DIRECTIONS)),))
    leaves_out = not hidden if leave_sites_out is None else leave_sites_out
    names = tuple(asked.sites) if leaves_out and len(asked.sites) > 1 else ()
    refits = RefitModels(parameters, n_resamples, names, seed)
    if refits.n_models > MOST_MODELS:
        most = MOST_MODELS // STARTS - len(names)
        raise ValueError(f"n_resamples={n_resamples} is too many: sites refit at most {most} halves at once.")
    overlaps = CountOverlaps(refits)
    embed: list[Phase[Any, Any]] = []
    if space is not None:
        embed = [FindOwnAnchors(space, refits.bases), TieOwnRows(space, refits.bases)]
    phases: list[Phase[Any, Any]] = [SumSpread(in_views), *embed, refits, overlaps, CountStays(overlaps)]
    answer = ask_sites(model, asked, phases, secure=secure)
    found = answer.board.get(Overlaps)
    jaccard, halved = find_jaccard(found.tables), found.tables[:n_resamples]
    certain, summary = answer.board.get(CertaintyCounts), answer.board.get(ClusterSpread).summary
    kept = np.divide(certain.stayed, certain.rows, out=np.full(BINS, np.nan), where=certain.rows > 0.5)
    with own_threads():  # clouds are small: threads of BLAS would mostly wait for each other
        reference = _halve_clouds(in_views, summary, seed, space)
    return Stability(
        halves=compare_halves(halved, found.halves),
        jaccard=jaccard[:n_resamples],
        site_jaccard=dict(zip(names, jaccard[n_resamples:], strict=True)),
        consensus=find_consensus(halved),
        rows=summary.counts,
        certainty_rows=certain.rows,
        certainty_kept=kept,
        answer=answer,
        reference=reference,
    )
