"""Agreement: the frame, chosen by how much the clusters of views agree with each other, and with those of sites alone.

Two exchanges. Sites send weighted means of rows as each witness sees them, and the server makes common clusters of
these. Sites then say how much the clusters of two witnesses have in common at the site, and how much those of all sites
have in common with what the site finds alone: sums of two numbers for each pair. Under masks nobody sees means of a
site: common clusters are made of sums, in several exchanges.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np

from fedhk._typing import FloatArray, IntArray
from fedhk.agreement.frames import (
    FRAMES,
    MEANS_PER_CLUSTER,
    OWN_STARTS,
    SEED,
    Evidence,
    Witness,
    adjust,
    calibrate_points,
    choose_frame,
    count_columns,
    count_together,
    describe_frame,
    find_centers,
    find_columns,
    find_means,
    keep_complete,
    list_mixes,
    list_pairs,
    list_witnesses,
    partition,
    read_points,
    share_information,
)
from fedhk.agreement.mix import MixSums, find_axes, share_of_mix
from fedhk.agreement.opinions import Opinion
from fedhk.data.levels import find_numbers
from fedhk.errors import MessageError
from fedhk.federation.aggregators import PLAIN_SUM, Aggregator, choose_candidates
from fedhk.federation.board import Board, Entry, Shared
from fedhk.federation.entries import Population, References, Schema
from fedhk.federation.phases.base import Nothing, Phase, SumPhase
from fedhk.federation.phases.describe import SiteEffect, Variation, compare_means
from fedhk.federation.phases.publish_frame import Shares
from fedhk.federation.phases.scalings import scalings_of
from fedhk.federation.phases.sum_start import count_means
from fedhk.federation.plausible import MOST_ROWS
from fedhk.federation.sealed import SealedTerms
from fedhk.federation.site import Site
from fedhk.federation.table import Table, check_array
from fedhk.model.preparation import site_moments
from fedhk.model.rows import split_joint
from fedhk.personal.calibration import ClusterEffects, choose_sample, common_spread, scale_frame
from fedhk.starts.candidates import ROWS_PER_CANDIDATE, Candidates
from fedhk.starts.kmeans import find_nearest, group_sums
from fedhk.starts.settings import Settings

# Means and centres travel in this precision: what is compared are partitions, which it hardly changes.
PRECISION = "byte"

# Partitions of each witness, of which the mean agreement counts.
PARTITIONS = 4

# Passes of k-means from sums after there are as many means as are wanted. On 29 generated federations the gain of a
# frame differed from that in the open by .034 in the mean, and on 25 others by .029; in the open by .032 with another
# seed. With k-means of rows from sums, into as many clusters as are wanted, it differed by .067.
LAST_PASSES = 3

# The most means per cluster: with many sites they would cost bytes, and clusters are found from fewer.
MOST_MEANS = 12

# What a site says of centres that do not fit its views.
OTHER_WIDTH = "centres of another width than the view has"

# How far beside the mean of a cluster a second centre begins, in standard deviations of the cluster.
NEAR = 0.1

# Of the weight of all rows, the part below which a cluster has none but for rounding.
LEAST_SHARE = 1e-9


@dataclass(frozen=True, eq=False)
class Partitions(Entry):
    """Centres of each witness: one partition of all rows after the other."""

    witnesses: tuple[Witness, ...]
    centers: tuple[FloatArray, ...]
    count: int = PARTITIONS  # of each witness
    passes: int = 0  # of k-means from sums


@dataclass(frozen=True, eq=False)
class FirstCenters(Entry):
    """Centres of the clusters of all views in the frame that was taken."""

    centers: FloatArray


@dataclass(frozen=True, eq=False)
class Effects(Shared):
    """Differences between clusters within sites, from which a site computes what clusters leave of its mean."""

    effects: ClusterEffects


# ---------------------------------------------------------------------------------------------- partitions of witnesses


@dataclass(frozen=True, eq=False)
class PartitionsRequest:
    """Ask for means of rows as each witness sees them."""

    n_clusters: int
    witnesses: tuple[Witness, ...]
    kept: tuple[int, ...]  # views whose features have different variances as they are given: spreads stay in them


@dataclass(frozen=True, eq=False)
class MeansReply:
    """Means of groups of rows for each witness, none where the site lacks the view, and the weights of the groups."""

    means: tuple[Table, ...]
    sizes: tuple[FloatArray, ...]


class _Reader:
    """A site's rows as witnesses see them."""

    def __init__(self, site: Site, request: Any) -> None:
        self.views, self.references = site.aligned_views(), site.board.get(References).references
        self.kept, self.n_clusters = request.kept, request.n_clusters
        self.sample = choose_sample(self.views.n_rows, request.n_clusters)
        self._known: dict[tuple[int, int], FloatArray] = {}
        self._site = site

    def read(self, witness: Witness, frame: tuple[float, float] | None = None) -> FloatArray | None:
        """The points of a witness, in its frame or a given one; None where the site has none of its views."""
        shift, spread = witness.frame if frame is None else frame
        parts = list[FloatArray]()
        if any(not 0 <= view < len(self.references) for view in witness.views) or witness.half not in (-1, 0, 1):
            raise MessageError("a partition of a view that is not known")
        if not self.views.n_rows or all(self.views.tables[view] is None for view in witness.views):
            return None
        if witness.refined and frame is None:
            return self._read_refined(witness)
        for view in witness.views:
            own = 0.0 if view in self.kept else spread
            reference, points = self.references[view], self._points(view, witness.half)
            numbers = find_numbers(self.views.columns[view], reference.width)
            common, seen = common_spread(reference, numbers), numbers[find_columns(reference.width, witness.half)]
            parts.append(calibrate_points(points, float(self.views.n_rows), shift, own, numbers=seen, common=common))
        return np.hstack(parts)

    def group(self, witness: Witness) -> tuple[FloatArray, FloatArray]:
        """The means of groups of rows as a witness sees them, and their rows; none where the site has no view of it."""
        points = self.read(witness)
        if points is None:
            return np.zeros((0, 0)), np.zeros(0)
        weight, random_state = np.ones(len(points)), np.random.RandomState(SEED)
        return find_means(points, weight, self.n_clusters, random_state, self._site.least_group)

    def _read_refined(self, witness: Witness) -> FloatArray:
        """Return the points of a witness without what clusters leave of the site's mean and spread."""
        effects, widths = self._site.board.get(Effects), [reference.width for reference in self.references]
        frame = self._site.derive(effects, partial(effects.effects.measure_frame, self._site.rows()))
        taken, divide = scale_frame(frame, float(self.views.n_rows), witness.shift, witness.spread)
        parts, means, spreads = list[FloatArray](), split_joint(taken, widths), split_joint(divide, widths)
        for view in witness.views:
            columns = find_columns(widths[view], witness.half)
            mean, spread = means[view][columns], spreads[view][columns]
            parts.append(np.nan_to_num((self._points(view, witness.half) - mean) / spread))
        return np.hstack(parts)

    def _points(self, view: int, half: int) -> FloatArray:
        table, reference = self.views.tables[view], self.references[view]
        if table is None:  # at the mean, beside views that the site has
            return np.zeros((len(self.sample), count_columns(reference.width, half)))
        if (view, half) not in self._known:
            self._known[view, half] = read_points(table[self.sample], reference, half)
        return self._known[view, half]


@dataclass(frozen=True)
class FindPartitions(Phase[PartitionsRequest, MeansReply]):
    """Means of rows of all sites as each witness sees them, and the clusters that follow."""

    name: ClassVar[str] = "partitions"

    n_clusters: int
    settings: Settings
    aggregator: Aggregator = PLAIN_SUM

    def witnesses(self, board: Board) -> tuple[Witness, ...]:
        """Witnesses to ask; none where sites do not differ by more than chance."""
        if self.n_clusters < 2 or not board.get(SiteEffect).is_sure:
            return ()
        return list_witnesses(len(board.get(Schema).names))

    def is_done(self, board: Board, exchanges: int) -> bool:
        return exchanges > 0 or not self.witnesses(board)

    def request(self, board: Board) -> PartitionsRequest:
        kept = tuple([view for view, own in enumerate(scalings_of(board, self.settings)) if not own.unit_variance])
        return PartitionsRequest(self.n_clusters, self.witnesses(board), kept)

    @staticmethod
    def answer(site: Site, request: PartitionsRequest) -> MeansReply:
        means, sizes, reader = list[Table](), list[FloatArray](), _Reader(site, request)
        for witness in request.witnesses:
            found, weights = reader.group(witness)
            means.append(Table.of(found, PRECISION))
            sizes.append(weights.astype(np.float32))
        return MeansReply(tuple(means), tuple(sizes))

    def sealed(self, terms: SealedTerms) -> list[Phase[Any, Any]]:
        return [*SumEffect().sealed(terms), *SumPartitions(self).sealed(terms)]

    def check(self, board: Board, reply: MeansReply, site: str) -> None:
        wanted = self.witnesses(board)
        if len(reply.means) != len(wanted) or len(reply.sizes) != len(wanted):
            raise MessageError(f"means for {len(reply.means)} partitions, expected {len(wanted)}", site)
        widths = board.get(References).widths
        for witness, means, sizes in zip(wanted, reply.means, reply.sizes, strict=True):
            count, width = len(means.values), sum([count_columns(widths[v], witness.half) for v in witness.views])
            means.check((None, width if count else None), site, "means")
            check_array(sizes, (count,), site, "weights of means", non_negative=True)
            if count > MEANS_PER_CLUSTER * self.n_clusters or np.any(sizes <= 0) or sizes.sum() > MOST_ROWS:
                raise MessageError("more means than were asked for, or weights that no rows can have", site)

    def combine(self, board: Board, replies: Mapping[str, MeansReply]) -> Board:
        found = dict[Witness, tuple[FloatArray, FloatArray]]()
        for place, witness in enumerate(self.witnesses(board)):
            parts = []
            for reply in replies.values():
                if len(reply.sizes[place]):
                    sizes = np.asarray(reply.sizes[place], np.float64)
                    parts.append(Candidates(reply.means[place].read(), sizes, np.zeros((len(sizes), 1))))
            chosen = choose_candidates(self.aggregator, parts) if parts else []
            kept = [part for part in chosen if len(part.sizes)]
            if kept:
                found[witness] = np.vstack([part.points for part in kept]), np.concatenate([p.sizes for p in kept])
        return board.put(self.cluster(found))

    def cluster(self, found: Mapping[Witness, tuple[FloatArray, FloatArray]]) -> Partitions:
        """Cluster the means of each witness, which have these weights."""
        centers = dict[Witness, FloatArray]()
        for witness, (means, sizes) in found.items():
            own = find_centers(means, sizes, self.n_clusters, np.random.RandomState(SEED), PARTITIONS)
            if len(own):
                centers[witness] = own
        kept = keep_complete(list(centers))
        return Partitions(tuple(kept), tuple([centers[witness] for witness in kept]), PARTITIONS)


# ---------------------------------------------------------------------------------------------------- what is in common


@dataclass(frozen=True, eq=False)
class AgreementRequest:
    """Ask how much the clusters of witnesses have in common within the site, and with those that it finds alone."""

    n_clusters: int
    witnesses: tuple[Witness, ...]
    kept: tuple[int, ...]
    partitions: int
    centers: tuple[Table, ...]  # of all partitions of a witness, one after the other


# ---------------------------------------------------------------------------------------------------- from sums alone


@dataclass(frozen=True)
class SumEffect(SumPhase[Nothing]):
    """Whether sites differ by more than chance, from sums: of each view its sites and rows, and four sums per feature.

    These are how many values there are, their squares within sites, and the first two powers of the sites' means.
    """

    name: ClassVar[str] = "sum effect"
    with_noise: ClassVar[bool] = False  # no frame is chosen then

    def size(self, board: Board) -> int:
        return sum([2 + 4 * width for width in board.get(References).widths])

    @staticmethod
    def vector(site: Site, request: Nothing) -> FloatArray:
        references, parts = site.board.get(References).references, list[FloatArray]()
        forms, widths = [reference.form for reference in references], [reference.width for reference in references]
        for own, reference in zip(site_moments(site.aligned_views(), widths, forms=forms), references, strict=True):
            varies = (own.weight > 0) & np.isfinite(reference.scale)
            weight, mean = own.weight * varies, np.where(varies, reference.to_model(own.mean), 0.0)
            within = np.where(varies, own.squares / np.square(reference.scale), 0.0)
            parts += [np.array([float(own.rows > 0), own.rows]), weight, within, weight * mean, weight * mean**2]
        return np.concatenate(parts)

    def take(self, board: Board, total: FloatArray, noise: float) -> Board:
        views = []
        for part in np.split(total, np.cumsum([2 + 4 * width for width in board.get(References).widths])[:-1]):
            weight, within, first, second = part[2:].reshape(4, -1)
            between = np.maximum(second - np.square(first) / np.maximum(weight, 0.5), 0.0)
            views.append(Variation(float(np.rint(part[0])), float(part[1]), between, np.maximum(within, 0.0)))
        return board.put(compare_means(views))


@dataclass(frozen=True)
class SumPartitions(SumPhase[AgreementRequest]):
    """Partitions of all rows as each witness sees them, from sums: as in the open, but of means over several sites.

    Sites group their rows as in the open, where they send the means of these groups. Here sums put about three groups
    into one mean, by k-means that splits clusters until there are enough. Sites send, for every centre, the sum of the
    rows of the groups whose means are nearest to it, how many these are, and the squared lengths of the means. Means
    are the next centres. Beside those of the clusters with the largest sums of squares a second centre is put, at most
    one each; and where no group is nearest to a centre. Clusters of the last means are found as in the open.
    """

    name: ClassVar[str] = "sum partitions"
    with_noise: ClassVar[bool] = False

    find: FindPartitions

    def begin(self, board: Board) -> Board:
        widths, witnesses = board.get(References).widths, self.find.witnesses(board)
        if not witnesses:
            return board
        centers = tuple([np.zeros((1, _count_features(witness, widths))) for witness in witnesses])
        return board.put(Partitions(witnesses, centers, 1))

    def is_done(self, board: Board, exchanges: int) -> bool:
        return exchanges >= self._count_passes(board) or not board.has(Partitions)

    def request(self, board: Board) -> AgreementRequest:
        found, asked = board.get(Partitions), self.find.request(board)
        centers = tuple([Table.of(part, "single") for part in found.centers])
        return AgreementRequest(asked.n_clusters, found.witnesses, asked.kept, found.count, centers)

    def size(self, board: Board) -> int:
        return sum([len(part) * (part.shape[1] + 2) for part in board.get(Partitions).centers])

    @staticmethod
    def vector(site: Site, request: AgreementRequest) -> FloatArray:
        sums, reader = list[FloatArray](), _Reader(site, request)
        for witness, table in zip(request.witnesses, request.centers, strict=True):
            (means, sizes), centers = reader.group(witness), table.read()
            if len(means) and centers.shape[1:] != means.shape[1:]:
                raise MessageError(OTHER_WIDTH)
            total = np.zeros((len(centers), centers.shape[1] + 2))
            if len(means) and len(centers):
                values = np.column_stack([means, np.ones(len(means)), np.square(means).sum(axis=1)])
                total = group_sums(values, sizes, find_nearest(means, centers), len(centers))[0]
            sums.append(total.ravel())
        return np.concatenate(sums)

    def take(self, board: Board, total: FloatArray, noise: float) -> Board:
        found, tables = board.get(Partitions), list[FloatArray]()
        for part in found.centers:
            own, total = np.split(total, [len(part) * (part.shape[1] + 2)])
            tables.append(own.reshape(len(part), -1))
        if found.passes + 1 < self._count_passes(board):
            most, random_state = self._count_means(board), np.random.RandomState(SEED)
            centers = tuple([_split_clusters(table, min(most, 2 * len(table)), random_state) for table in tables])
            return board.put(replace(found, centers=centers, passes=found.passes + 1))
        means = dict(zip(found.witnesses, map(_read_means, tables), strict=True))
        return board.put(self.find.cluster(means))

    def _count_means(self, board: Board) -> int:
        """Means that are wanted of each witness."""
        known, c = board.get(Population), self.find.n_clusters
        groups = min(known.n_sites * MEANS_PER_CLUSTER * c, int(known.rows) // ROWS_PER_CANDIDATE)
        return max(min(count_means(groups, c), MOST_MEANS * c), 1)

    def _count_passes(self, board: Board) -> int:
        return math.ceil(math.log2(self._count_means(board))) + LAST_PASSES


def _read_means(table: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The means of the clusters that have rows, and how many rows they have."""
    filled = table[:, -2] > LEAST_SHARE * table[:, -2].sum()
    return table[filled, :-2] / table[filled, -2:-1], table[filled, -2]


def _count_features(witness: Witness, widths: Sequence[int]) -> int:
    return sum([count_columns(widths[view], witness.half) for view in witness.views])


def _sum_squares(table: FloatArray) -> FloatArray:
    """Squared distances of rows to the mean of their cluster, from sums over the rows of each cluster.

    `table` has, per cluster, the sum of its rows, their number, and the sum of their squared lengths.
    """
    about_mean = table[:, -1] - np.square(table[:, :-2]).sum(axis=1) / np.maximum(table[:, -2], 1e-300)
    return np.asarray(np.maximum(about_mean, 0.0))


def _split_clusters(table: FloatArray, most: int, random_state: np.random.RandomState) -> FloatArray:
    """The means of clusters and, beside those with the largest sums of squares, more centres: `most` in all."""
    filled = table[:, -2] > LEAST_SHARE * table[:, -2].sum()
    table = table[filled] if filled.any() else np.zeros((1, table.shape[1]))
    sizes, squares = np.maximum(table[:, -2], 1e-300), _sum_squares(table)
    means = table[:, :-2] / sizes[:, None]
    split = np.resize(np.argsort(-squares, kind="stable"), most - len(means))
    aside = random_state.standard_normal((len(split), means.shape[1])) / math.sqrt(means.shape[1])
    return np.vstack([means, means[split] + NEAR * np.sqrt(squares[split] / sizes[split])[:, None] * aside])


@dataclass(frozen=True, eq=False)
class CompareRequest(AgreementRequest):
    """Ask too how rows lie along directions, for each pair of `list_mixes`."""

    axes: tuple[Table, ...]  # of shape (q, d) each, d the features of the first of the pair


@dataclass(frozen=True)
class CompareClusters(SumPhase[CompareRequest]):
    """Information that witnesses share within sites, and the choice that follows.

    For each pair of witnesses two numbers, what their clusters have in common beyond chance and the most it could be;
    the same for what is compared with sites alone; sums that tell how much of the sites' offsets follows from which
    clusters they have; and at last the rows.
    """

    name: ClassVar[str] = "agreement"
    with_noise: ClassVar[bool] = False

    find: FindPartitions

    def begin(self, board: Board) -> Board:
        return board if board.has(Partitions) else self._take(board, {}, {}, 0.0)

    def is_done(self, board: Board, exchanges: int) -> bool:
        return exchanges > 0 or not board.has(Partitions)

    def request(self, board: Board) -> CompareRequest:
        found, asked = board.get(Partitions), self.find.request(board)
        centers = tuple([Table.of(part, PRECISION) for part in found.centers])
        axes = tuple([Table.of(part, PRECISION) for part in self._axes(found)])
        return CompareRequest(asked.n_clusters, found.witnesses, asked.kept, found.count, centers, axes)

    def size(self, board: Board) -> int:
        return self._informed(board) + sum(self._mixed(board)) + 1

    @staticmethod
    def vector(site: Site, request: CompareRequest) -> FloatArray:
        reader, c = _Reader(site, request), request.n_clusters
        labels: list[Sequence[IntArray]] = []
        for points, partitions in _read_partitions(reader, request):
            labels.append(() if points is None else [find_nearest(points, part) for part in partitions])
        sums = [_add_information(zip(labels[i], labels[j]), c) for i, j in list_pairs(request.witnesses)]  # noqa: B905
        alone = dict[Any, IntArray]()
        for witness, found in zip(request.witnesses, labels, strict=True):
            if not witness.alone:
                continue
            points = reader.read(witness, (1.0, 1.0))
            if points is None or len(points) <= c:
                sums.append((0.0, 0.0))
                continue
            if witness.part not in alone:
                random_state, weight = np.random.RandomState(SEED), np.ones(len(points))
                alone[witness.part] = partition(points, weight, c, random_state, most_starts=OWN_STARTS)[0]
            sums.append(_add_information([(part, alone[witness.part]) for part in found], c))
        mixes = _read_mixes(reader, request, labels)
        return np.array([*np.ravel(sums), *np.concatenate([np.zeros(0), *mixes]), float(len(reader.sample))])

    def check_vector(self, board: Board, values: FloatArray, site: str) -> None:
        most = values[-1] * np.log(self.find.n_clusters) * PARTITIONS * (1 + 1e-6)
        if not 0 <= values[-1] <= MOST_ROWS or np.any(np.abs(values[: self._informed(board)]) > most):
            raise MessageError("more information in common than so many rows can have", site)

    def total(self, board: Board, vectors: Sequence[FloatArray]) -> FloatArray:
        return self.find.aggregator.sums(vectors, [np.full(len(values), values[-1]) for values in vectors])

    def take(self, board: Board, total: FloatArray, noise: float) -> Board:
        partitions, c = board.get(Partitions), self.find.n_clusters
        witnesses = partitions.witnesses
        pairs, alone = list_pairs(witnesses), [i for i, witness in enumerate(witnesses) if witness.alone]
        informed, mixed = np.split(total[:-1], [self._informed(board)])
        found = [adjust(*sums) for sums in informed.reshape(-1, 2)]
        agreed = dict(zip([*pairs, *alone], found, strict=True))
        mixes = np.split(mixed, np.cumsum(self._mixed(board))[:-1]) if len(mixed) else []
        sums = [MixSums.read(part, c, len(axes)) for part, axes in zip(mixes, self._axes(partitions), strict=True)]
        between, with_sites = {pair: agreed[pair] for pair in pairs}, {i: agreed[i] for i in alone}
        board = self._take(board, between, with_sites, share_of_mix(sums)).drop(Partitions)
        taken = (board.get(Shares).shift, board.get(Shares).spread)
        for place in alone:
            if any(taken) and witnesses[place].frame == taken:
                board = board.put(FirstCenters(np.array_split(partitions.centers[place], partitions.count)[0]))
        return board

    def _take(
        self, board: Board, pairs: Mapping[tuple[int, int], float], alone: Mapping[int, float], mix: float
    ) -> Board:
        witnesses = board.get(Partitions).witnesses if board.has(Partitions) else ()
        if not alone:
            return board.put(Shares(*FRAMES[0], (Opinion(-1, describe_frame(FRAMES[0]), np.nan, taken=True),)))
        (shift, spread), opinions = choose_frame(Evidence(witnesses, pairs, alone, mix))
        return board.put(Shares(shift, spread, tuple(opinions)))

    @staticmethod
    def _informed(board: Board) -> int:
        """Numbers that say how much clusters have in common."""
        witnesses = board.get(Partitions).witnesses
        return 2 * (len(list_pairs(witnesses)) + sum([witness.alone for witness in witnesses]))

    def _mixed(self, board: Board) -> list[int]:
        """Numbers of each pair that say which clusters sites have."""
        return [MixSums.size(self.find.n_clusters, len(axes)) for axes in self._axes(board.get(Partitions))]

    @staticmethod
    def _axes(found: Partitions) -> list[FloatArray]:
        """Directions for each pair of `list_mixes`, from the first partition of the first of the pair."""
        firsts = [np.array_split(found.centers[i], found.count)[0] for i, _ in list_mixes(found.witnesses)]
        return [find_axes(centers) for centers in firsts]


def _read_mixes(reader: _Reader, request: CompareRequest, labels: Sequence[Sequence[IntArray]]) -> list[FloatArray]:
    """Sums of a site for each pair of `list_mixes`; zeros where it lacks one of the views."""
    found, c = list[FloatArray](), request.n_clusters
    for (first, second), table in zip(list_mixes(request.witnesses), request.axes, strict=True):
        points, axes = reader.read(request.witnesses[first]), table.read()
        if points is None or not len(labels[second]):
            found.append(np.zeros(MixSums.size(c, len(axes))))
            continue
        if axes.shape[1:] != points.shape[1:]:
            raise MessageError("directions of another width than the view has")
        found.append(MixSums.of(points, labels[second][0], axes, c).as_vector())
    return found


def _read_partitions(
    reader: _Reader, request: AgreementRequest
) -> Iterator[tuple[FloatArray | None, list[FloatArray]]]:
    """The points of each witness, None where the site has none, and the centres of each of its partitions."""
    for witness, table in zip(request.witnesses, request.centers, strict=True):
        points, centers = reader.read(witness), table.read()
        if points is not None and centers.shape[1:] != points.shape[1:]:
            raise MessageError(OTHER_WIDTH)
        partitions = np.array_split(centers, max(request.partitions, 1))
        if any(not 0 < len(part) <= request.n_clusters for part in partitions):
            raise MessageError("more or fewer centres than clusters")
        yield points, partitions


def _add_information(pairs: Any, n_clusters: int) -> tuple[float, float]:
    """What pairs of partitions share and the most that they could, added up."""
    found = [share_information(count_together(first, second, n_clusters)) for first, second in pairs]
    return sum([shared for shared, _ in found]), sum([most for _, most in found])
