"""New clusters in an update: where rows fit no cluster, and where one cluster has become two."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeVar

import numpy as np
from scipy.stats import poisson

from fedhk._typing import BoolArray, FloatArray, IntArray
from fedhk.federation.aggregators import PLAIN_SUM, Aggregator
from fedhk.federation.board import Board, Entry
from fedhk.federation.entries import Minimisation, Space
from fedhk.federation.phases.base import SumPhase
from fedhk.federation.phases.kept_embedding import FoundEmbedding, Roots
from fedhk.federation.phases.update import (
    BY_CHANCE,
    FEW_DIGITS,
    FEWEST_ROWS,
    CurrentModel,
    FewDigits,
    Found,
    Moved,
    are_fewer,
    check_sums,
    how_sure,
    place_rows,
)
from fedhk.federation.site import Site
from fedhk.federation.table import Table
from fedhk.model.memory import LEAST_ROWS, RARE, ClusterSpread, Memory, RememberingParameters, find_scale
from fedhk.model.parameters import Parameters
from fedhk.model.rows import split_joint

# A cluster may be in two parts where squared distances vary by less than products say, by this over the root of its
# rows: two standard deviations of the share in normal clouds of 2 to 50 features and 30 to 1,000 rows.
FLAT = 4.0

# Most steps that find two parts of a cluster: the widest feature, and 2-means from there; small parts need a few.
CUTS = 5

Request = TypeVar("Request")


class LinePhase(SumPhase[Request]):
    """A sum with a line for each of some clusters: counts of rows, then sums of features over rows.

    Sites send these sums as means, in half precision: its error is far below that of a mean of rows.
    """

    reply_type: ClassVar[Any] = FewDigits
    with_noise: ClassVar[bool] = False
    sizes: ClassVar[slice]  # the last counts of a line: the rows behind the sums, which are in as many equal parts

    aggregator: Aggregator

    @abstractmethod
    def clusters(self, board: Board) -> tuple[int, ...]:
        """Server: return the clusters that have a line."""

    def size(self, board: Board) -> int:
        parts = self.sizes.stop - self.sizes.start
        return int(len(self.clusters(board)) * (self.sizes.stop + parts * sum(board.get(Space).widths)))

    @classmethod
    def answer(cls, site: Site, request: Any) -> Any:
        lines = cls.vector(site, request).reshape(len(request.clusters), -1)
        counts, sums = np.split(lines, [cls.sizes.stop], axis=1)
        rows = rows_behind(counts, sums, cls.sizes)
        means = np.divide(sums, rows, out=np.zeros_like(sums), where=rows > 0)
        return FewDigits(Table.of(means, FEW_DIGITS.precision), Table.of(counts, "single"))

    def read(self, reply: Any) -> FloatArray:
        """Server: return the vector of a site."""
        counts, means = reply.rest.read(), reply.moves.read()
        return np.hstack([counts, means * rows_behind(counts, means, self.sizes)]).ravel()

    def check(self, board: Board, reply: Any, site: str) -> None:
        count = len(self.clusters(board))
        reply.rest.check((count, self.sizes.stop), site, "counts")
        reply.moves.check((count, self.size(board) // count - self.sizes.stop), site, "means")
        self.check_vector(board, self.read(reply), site)

    def total(self, board: Board, vectors: Sequence[FloatArray]) -> FloatArray:
        return self.aggregator.sums(vectors, count_behind(vectors, len(self.clusters(board)), self.sizes))

    def combine(self, board: Board, replies: Mapping[str, Any]) -> Board:
        return self.take(board, self.total(board, [self.read(reply) for reply in replies.values()]), 0.0)


def rows_behind(counts: FloatArray, sums: FloatArray, sizes: slice) -> FloatArray:
    """Return the number of rows behind each sum of the lines."""
    parts = counts[:, sizes]
    return np.repeat(parts, sums.shape[1] // parts.shape[1], axis=1)


@dataclass(frozen=True, eq=False)
class StraysRequest:
    """Ask for the rows that fit no cluster and are nearest to some clusters.

    Where there are directions, of shape (g, d), they are from the centres of these clusters to where such rows are on
    average; it is asked how many rows there are on the way. Of embedded rows it is the way from the anchors, by the
    mean distance of the rows of these clusters and of those that fit nowhere: `reaches`, of shape (g, 2).
    """

    clusters: tuple[int, ...]
    directions: Table
    reaches: FloatArray


@dataclass(frozen=True, eq=False)
class Directions(Entry):
    """Directions from some centres to the mean of the rows nearest to them that fit no cluster."""

    clusters: tuple[int, ...]
    values: FloatArray  # (g, d)
    groups: tuple[int, ...]  # those of one number lead to one place
    reaches: FloatArray  # of embedded rows: mean distances to anchors of rows in these clusters and of others, (g, 2)


@dataclass(frozen=True)
class AddClusters(LinePhase[StraysRequest]):
    """Add clusters where more rows fit no cluster than chance explains, and fewer rows lie between than there.

    The first sum is of the rows that fit nowhere, by the cluster that they are nearest to; means that are no farther
    apart than chance explains are one. Such a mean may be the tail of a cluster that has moved: so the second sum
    counts rows in the middle between the two, where a cluster of its own has fewer.
    """

    name: ClassVar[str] = "add clusters"
    unbounded: ClassVar[str] = "rows that fit nowhere may be anywhere."
    sizes: ClassVar[slice] = slice(2, 3)

    aggregator: Aggregator = PLAIN_SUM

    def is_done(self, board: Board, exchanges: int) -> bool:
        return exchanges > 1 or not self.clusters(board)

    def clusters(self, board: Board) -> tuple[int, ...]:
        """Server: return the clusters near which rows fit no cluster, if there are more such rows than by chance."""
        for directions in board.find(Directions):
            return directions.clusters
        found = board.get(Found)
        total = float(found.strays.sum())
        expected = RARE * (float(found.spread.rows.sum()) + total)
        if total < LEAST_ROWS or poisson.sf(total - 0.5, expected) >= BY_CHANCE:
            return ()
        return tuple(np.flatnonzero(found.strays >= FEWEST_ROWS).tolist())

    def request(self, board: Board) -> StraysRequest:
        none = Directions((), np.zeros((0, 0)), (), np.zeros((0, 2)))
        known = next(board.find(Directions), none)
        return StraysRequest(self.clusters(board), Table.of(known.values, FEW_DIGITS.precision), known.reaches)

    @staticmethod
    def vector(site: Site, request: StraysRequest) -> FloatArray:
        current = site.board.get(CurrentModel)
        seen = current.seen_by(site)
        placement = place_rows(site)
        placed = placement.placed
        centers, directions = np.hstack(seen.centers), request.directions.read()
        joint = placed.away + centers[placed.labels]
        lines = []
        for group, cluster in enumerate(request.clusters):
            mine = placement.strays & (placement.nearest == cluster)
            away = joint - centers[cluster]
            counts = placement.sum_reach(cluster)
            if len(directions):
                along = placement.follow(away, directions[group], request.reaches[group])
                about = mine | (placed.labels == cluster)
                counts = [float(np.sum(about & (np.abs(along - place) < 1 / 6))) for place in (1.0, 0.5)]
                mine = about & (along > 0.5)
            lines.append(np.concatenate([counts, [mine.sum()], mine @ away]))
        return np.concatenate(lines) if lines else np.zeros(0)

    def check_vector(self, board: Board, values: FloatArray, site: str) -> None:
        lines = values.reshape(len(self.clusters(board)), -1)
        check_sums(lines[:, :2], np.zeros(1), np.zeros(1), site)
        check_sums(lines[:, 2:3], lines[:, 3:], np.concatenate(board.get(Space).reach), site)

    def take(self, board: Board, total: FloatArray, noise: float) -> Board:
        clusters = self.clusters(board)
        lines = total.reshape(len(clusters), -1)
        before = board.get(Moved).before
        starts, counts = np.hstack(before.centers)[list(clusters)], lines[:, 2]
        places = starts + lines[:, 3:] / np.maximum(counts, 1.0)[:, None]
        if not board.has(Directions):
            groups = _join_places(board, places, counts)
            means = [np.average(places[groups == group], axis=0, weights=counts[groups == group]) for group in groups]
            inside = board.get(Found).spread.rows[list(clusters)]
            reaches = lines[:, :2] / np.maximum(np.column_stack([inside, counts]), 1.0)
            return board.put(Directions(clusters, np.array(means) - starts, tuple(groups.tolist()), reaches))
        groups, centers = np.array(board.get(Directions).groups), []
        for group in np.unique(groups):
            mine = groups == group
            there, between = lines[mine, :2].sum(axis=0)
            if are_fewer(between, there, how_sure(board)) and there >= LEAST_ROWS:
                centers.append(np.average(places[mine], axis=0, weights=np.maximum(counts[mine], 1e-9)))
        if not centers:
            return board
        centers = drop_doubles(before, np.hstack(before.centers), centers)
        state = board.get(Minimisation)
        parameters = _add_centers(state.parameters, np.array(centers))
        state = replace(state, progress=replace(state.progress, parameters=parameters))
        return board.put(state, board.get(Found).with_clusters(len(centers)))


def _join_places(board: Board, places: FloatArray, counts: FloatArray) -> IntArray:
    """Group the places of new clusters: places whose distance chance alone explains are in one group.

    Two means of n and m rows with the spread s^2 are s^2 (1/n + 1/m) apart by chance, on average; twice as much is
    four standard deviations more in 40 dimensions.
    """
    spread, scale = board.get(Found).after.spread, find_scale(board.get(Moved).before)
    trace = float(spread.squares.sum() / max(float(spread.rows.sum()), 1.0))
    groups = np.full(len(places), -1)
    for place in np.argsort(-counts, kind="stable"):
        apart = np.square((places - places[place]) * scale).sum(axis=1)
        near = apart <= 2 * trace * (1 / np.maximum(counts, 1.0) + 1 / max(float(counts[place]), 1.0))
        first = np.flatnonzero(near & (groups >= 0))
        groups[place] = groups[first[0]] if len(first) else groups.max() + 1
    return groups


def drop_doubles(parameters: Parameters, known: FloatArray, places: Sequence[FloatArray]) -> list[FloatArray]:
    """Drop new centres that are nearer to an earlier one than half the distance to a known centre."""
    scale = find_scale(parameters)
    kept: list[FloatArray] = []
    for place in places:
        way = np.square((known - place) * scale).sum(axis=1).min()
        if all(4 * np.square((other - place) * scale).sum() > way for other in kept):
            kept.append(place)
    return kept


def _add_centers(parameters: Parameters, centers: FloatArray) -> Parameters:
    """Return the parameters with more centres, of shape (g, d), which have no memory yet."""
    more = split_joint(centers, [part.shape[1] for part in parameters.centers])
    new: dict[str, Any] = {"centers": tuple(map(np.vstack, zip(parameters.centers, more, strict=True)))}
    if isinstance(parameters, RememberingParameters):
        none = ((0, len(centers)), (0, 0))
        new["anchors"] = tuple(map(np.vstack, zip(parameters.anchors, more, strict=True)))
        new["weights"] = tuple(np.pad(weights, none) for weights in parameters.weights)
    if parameters.sizes is not None:
        new["sizes"] = np.concatenate([parameters.sizes, np.ones(len(centers))])
    return replace(parameters, **new)


@dataclass(frozen=True, eq=False)
class HalvesRequest:
    """Ask for the halves of some clusters on either side of a plane, or before that for the squares of features.

    Parameters
    ----------
    clusters : tuple of int
        Which clusters.
    directions : Table of shape (g, d)
        Across the planes; empty where squares are asked for.
    offsets : array of shape (g,)
        How far each plane is from the centre, in lengths of the direction.
    count : bool
        Whether rows that had no part in finding the planes are counted at the means of both halves and between them.
    """

    clusters: tuple[int, ...]
    directions: Table
    offsets: FloatArray
    count: bool


@dataclass(frozen=True, eq=False)
class Halves(Entry):
    """Two halves of some clusters, as far as they are known: directions between their means, and the midpoints."""

    clusters: tuple[int, ...]
    directions: FloatArray
    middles: FloatArray
    step: int = 0


@dataclass(frozen=True)
class SplitClusters(LinePhase[HalvesRequest]):
    """Split a cluster in two where fewer rows lie between the means of its halves than at either mean.

    Clusters that may be in two parts are found by sums that are there already (`is_flat`, `is_wider`). They are cut in
    two by a few steps of 2-means on half of the rows, until means move by less than chance explains. The other rows are
    counted. Where rows of one new cluster were
    placed in several old ones, the parts that they make there are no farther apart than chance explains, and are one.
    """

    name: ClassVar[str] = "split clusters"
    unbounded: ClassVar[str] = "rows may be anywhere."
    sizes: ClassVar[slice] = slice(3, 5)

    aggregator: Aggregator = PLAIN_SUM

    def begin(self, board: Board) -> Board:
        found = board.get(Found)
        known = (is_flat(found.after.spread) | is_wider(found.spread, found.memory.spread)) & (
            found.spread.rows >= 2 * LEAST_ROWS
        )
        none = np.zeros((0, 0))
        return board.put(Halves(tuple(np.flatnonzero(known).tolist()), none, none))

    def is_done(self, board: Board, exchanges: int) -> bool:
        return not board.get(Halves).clusters

    def clusters(self, board: Board) -> tuple[int, ...]:
        """Server: return the clusters that may be in two parts."""
        return board.get(Halves).clusters

    def request(self, board: Board) -> HalvesRequest:
        halves = board.get(Halves)
        directions = Table.of(halves.directions, FEW_DIGITS.precision)
        across = directions.read() * (np.square(find_scale(board.get(Moved).before)) if halves.step else 1.0)
        lengths = np.maximum(np.einsum("gd,gd->g", directions.read(), across), 1e-300)
        offsets = np.einsum("gd,gd->g", halves.middles, across) / lengths
        return HalvesRequest(halves.clusters, directions, offsets, halves.step == CUTS)

    @staticmethod
    def vector(site: Site, request: HalvesRequest) -> FloatArray:
        placed = place_rows(site).placed
        directions = request.directions.read()
        odd = np.arange(len(placed.labels)) % 2 == 1
        lines = []
        for group, cluster in enumerate(request.clusters):
            mine = placed.labels == cluster
            counts = np.zeros(3)
            if not len(directions):
                away = placed.away[mine & odd]
                sizes = np.full(2, len(away), np.float64)
                lines.append(np.concatenate([counts, sizes, away.sum(axis=0), np.square(away).sum(axis=0)]))
                continue
            across = directions[group] * np.square(placed.scale)
            length = max(float(directions[group] @ across), 1e-300)
            along = placed.away @ across / length - request.offsets[group]
            if request.count:
                ends = (0.5, -0.5, 0.0)
                counts = np.array([np.sum(mine & ~odd & (np.abs(along - place) < 1 / 6)) for place in ends], np.float64)
            used = mine if request.count else mine & odd
            above, below = placed.away[used & (along > 0)], placed.away[used & (along <= 0)]
            sizes = np.array([len(above), len(below)], np.float64)
            lines.append(np.concatenate([counts, sizes, above.sum(axis=0), below.sum(axis=0)]))
        return np.concatenate(lines) if lines else np.zeros(0)

    def check_vector(self, board: Board, values: FloatArray, site: str) -> None:
        halves, limits = board.get(Halves), np.concatenate(board.get(Space).reach)
        counts, sizes, sums = np.split(values.reshape(len(halves.clusters), -1), [3, 5], axis=1)
        first, second = np.split(sums, 2, axis=1)
        check_sums(counts, np.zeros(1), np.zeros(1), site)
        check_sums(sizes[:, :1], first, limits, site)
        # the second sums are of the other half, or squares of the same rows
        check_sums(sizes[:, 1:], second, limits if halves.step else np.square(limits), site)

    def take(self, board: Board, total: FloatArray, noise: float) -> Board:
        halves = board.get(Halves)
        lines = total.reshape(len(halves.clusters), -1)
        counts, sizes, sums = np.split(lines, [3, 5], axis=1)
        first, second = np.split(sums, 2, axis=1)
        sizes = np.maximum(sizes, 1.0)
        if not halves.step:
            mean = first / sizes[:, :1]
            spread = second / sizes[:, :1] - np.square(mean)
            scale = np.square(find_scale(board.get(Moved).before))
            widest = np.argmax(spread * scale, axis=1)
            return board.put(Halves(halves.clusters, np.eye(mean.shape[1])[widest], mean, 1))
        above, below = first / sizes[:, :1], second / sizes[:, 1:]
        if halves.step < CUTS:
            step = CUTS if _is_steady(board, above - below, sizes) else halves.step + 1
            return board.put(Halves(halves.clusters, above - below, (above + below) / 2, step))
        ends = counts[:, :2].min(axis=1) * _usual_shares(board, halves.clusters, above, below)
        sure = are_fewer(counts[:, 2], ends, how_sure(board)) & (ends >= LEAST_ROWS)
        parts = [
            Split(halves.clusters[at], *split_ends(above[at], below[at], sizes[at])) for at in np.flatnonzero(sure)
        ]
        return _split_clusters(board, parts).put(replace(halves, clusters=()))


def _is_steady(board: Board, directions: FloatArray, sizes: FloatArray) -> bool:
    """Tell whether no direction between the means of two halves changed by more than its error in the last cut.

    The error of a difference of two means of n and m rows with the spread s^2 is s^2 (1/n + 1/m).
    """
    halves, before = board.get(Halves), board.get(Moved).before
    if halves.step < 2:  # the first direction was a single feature
        return False
    spread = board.get(Found).after.spread
    trace = (spread.squares / np.maximum(spread.rows, 1.0))[list(halves.clusters)]
    changes = np.square((directions - halves.directions) * find_scale(before)).sum(axis=1)
    return bool(np.all(changes <= trace * (1 / sizes).sum(axis=1)))


def is_flat(spread: ClusterSpread) -> BoolArray:
    """Tell whether squared distances to a centre vary less than products of rows say, beyond chance.

    Along a line, the square of a normal variable varies by twice the square of its variance, that of two points that
    are equally far from their middle not at all.
    """
    rows = np.maximum(spread.rows, 1.0)
    variance = spread.fourths / rows - np.square(spread.squares / rows)
    return np.asarray(variance < (1 - FLAT / np.sqrt(rows)) * 2 * spread.products / np.maximum(spread.pairs, 1.0))


def is_wider(now: ClusterSpread, before: ClusterSpread) -> BoolArray:
    """Tell whether tr(S^2) of a cluster's rows has grown; such clusters are checked for a split.

    By chance alone, .11 of normal clouds of 200 rows are so in 2 features, .04 in 5, and .01 in 20.
    """
    new, old = (part.products / np.maximum(part.pairs, 1.0) for part in (now, before))
    error = FLAT / 2 * np.sqrt(1 / np.maximum(now.pairs, 1.0) + 1 / np.maximum(before.pairs, 1.0))
    return np.asarray((before.pairs > 0) & (new > (1 + 2 * error) * old))


def _usual_shares(board: Board, clusters: Sequence[int], above: FloatArray, below: FloatArray) -> FloatArray:
    """Return how many rows there are midway between two halves of a cluster in one piece, over those at either mean.

    It is at most 1, which it is where clusters are round. One in an embedding has the shape of its anchors: a ring has
    fewer rows midway between its halves than at either, and is in one piece.
    """
    shares = np.ones(len(clusters))
    for found in board.find(FoundEmbedding):
        origin = found.origin
        roots = origin.roots(board.get(Roots).parents)
        points = np.hstack(origin.diffusion.graph.anchors)
        for group, cluster in enumerate(clusters):
            away = points[origin.owners == roots[cluster]] - origin.means[roots[cluster]]
            across = above[group] - below[group]
            along = (away - (above[group] + below[group]) / 2) @ across / max(float(across @ across), 1e-300)
            at = [np.sum(np.abs(along - place) < 1 / 6) for place in (0.0, 0.5, -0.5)]
            shares[group] = min((at[0] + 1.0) / (min(at[1:]) + 1.0), 1.0)
    return shares


@dataclass(frozen=True, eq=False)
class Split:
    """A cluster in two parts: where the larger one is, from the centre, where the other is, and the rows of both."""

    cluster: int
    kept: FloatArray
    new: FloatArray
    rows: tuple[float, float]


def split_ends(above: FloatArray, below: FloatArray, sizes: FloatArray) -> tuple[FloatArray, FloatArray, Any]:
    """Return both parts of a cluster, the larger one first, and their numbers of rows."""
    pair = (float(sizes[0]), float(sizes[1]))
    return (above, below, pair) if pair[0] >= pair[1] else (below, above, pair[::-1])


def _split_clusters(board: Board, parts: Sequence[Split]) -> Board:
    """Return the board with clusters split: the larger part keeps the number, the others come last."""
    before = board.get(Moved).before
    centers = np.hstack(before.centers)
    added = list(np.hstack(board.get(Minimisation).parameters.centers)[len(centers) :])
    first_new = len(added)
    parts = [
        part
        for part in parts
        if len(drop_doubles(before, centers, [*added, centers[part.cluster] + part.new])) > first_new
    ]
    if not parts:
        return board
    places = np.array([centers[part.cluster] + part.new for part in parts])
    counts = np.array([part.rows[1] for part in parts])
    groups = _join_places(board, places, counts)
    means = [np.average(places[groups == g], axis=0, weights=counts[groups == g]) for g in range(groups.max() + 1)]
    state, widths = board.get(Minimisation), board.get(Space).widths
    parameters: Any = _add_centers(state.parameters, np.array(means))
    found = board.get(Found).with_clusters(len(means))
    first, table, heights = len(found.weights) - len(means), found.memory.spread.to_array(), found.memory.weights.copy()
    joint, anchors = np.hstack(parameters.centers), np.hstack(parameters.anchors)
    for part, group in zip(parts, groups, strict=True):
        joint[part.cluster] = anchors[part.cluster] = centers[part.cluster] + part.kept
        share = part.rows[1] / sum(part.rows)
        heights[first + group] += share * heights[part.cluster]
        heights[part.cluster] *= 1 - share
        table[part.cluster] = 0.0  # how far rows were from a centre of both parts says nothing of either
    weights = tuple(heights.T[:, :, None])
    parts_of = split_joint(joint, widths), split_joint(anchors, widths)
    parameters = replace(parameters, centers=parts_of[0], anchors=parts_of[1], weights=weights)
    found = replace(found, memory=Memory(heights, ClusterSpread.from_array(table)))
    return board.put(replace(state, progress=replace(state.progress, parameters=parameters)), found)


def count_behind(vectors: Sequence[FloatArray], groups: int, where: slice) -> list[FloatArray]:
    """Return the number of rows behind each number of a site's vector, from the counts in each group's line."""
    found = []
    for values in vectors:
        lines = values.reshape(groups, -1)
        rows = np.maximum(lines[:, where].sum(axis=1, keepdims=True), 1.0)
        found.append(np.broadcast_to(rows, lines.shape).ravel())
    return found
