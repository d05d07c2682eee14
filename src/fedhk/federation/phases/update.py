"""Update: continue a fitted model with new rows, in few exchanges.

The server recalls the model and what it remembers. In the first exchange sites place their rows by it, and say how
these pull its centres, how far they are from them, and how far their means are from those that the site remembers.
Where rows fit nowhere, or a cluster has come apart, the phases in `new_clusters.py` find new centres. Rounds then go on
until centres stay within their error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
from scipy.stats import norm, poisson

from fedhk._typing import BoolArray, FloatArray, IntArray
from fedhk.data.moments import Moments
from fedhk.errors import DataError, MessageError
from fedhk.federation.aggregators import PLAIN_SUM, Aggregator
from fedhk.federation.board import Board, Entry, Shared
from fedhk.federation.entries import (
    Broadcast,
    Deviations,
    EarlierPast,
    FinalModel,
    FinalParameters,
    Minimisation,
    OwnPast,
    Population,
    References,
    Remembered,
    Schema,
    Space,
    columns_code,
)
from fedhk.federation.phases.base import Phase, ServerPhase, SumPhase
from fedhk.federation.phases.frame import Frame
from fedhk.federation.phases.kept_embedding import FoundEmbedding, Roots, place_embedded
from fedhk.federation.phases.scales import Bounds, CountRows
from fedhk.federation.phases.sum_rounds import NoisyRounds
from fedhk.federation.plausible import MOST_ROWS, REACH, ROUNDING, can_weigh
from fedhk.federation.protocols.statistics import Statistics as StatisticsProtocol
from fedhk.federation.sealed import SealedTerms
from fedhk.federation.site import Site
from fedhk.federation.table import Table, round_as_sent
from fedhk.model.descent import Progress, improve
from fedhk.model.drift import COMPARED, SitePast
from fedhk.model.fitted import FittedModel
from fedhk.model.memory import (
    LEAST_ROWS,
    RARE,
    SPREAD,
    ClusterSpread,
    Memory,
    PlacedRows,
    RememberingParameters,
    find_scale,
)
from fedhk.model.parameters import CenterForm, Parameters
from fedhk.model.rows import joint_rows, split_joint
from fedhk.model.statistics import Statistics
from fedhk.personal.calibration import Calibration
from fedhk.privacy.mechanism import UPDATE, read_bounds

# A cluster with fewer rows than this, after forgetting, is gone: no group has fewer.
FEWEST_ROWS = 2.0

# A site deviates if more than this share of its rows fits no cluster, unless this holds for most sites.
MOST_STRAYS = 0.5

# Numbers of a cluster in the answer of a round, besides its pulls and weights: spread, comparison, rows that are
# expected, rows at its centre and between it and the next one, rows that fit nowhere and are nearest to it.
TABLE = SPREAD + COMPARED + 4

# Standard deviations by which rows must be fewer in one place than in another to be surely fewer. In 24 months without
# drift and in 24 in which a cluster vanished, all of overlapping clusters, none came or went by mistake.
SURE = 1.0

# How likely chance alone explains that so many rows fit nowhere, or that a cluster lost so many, at most, before new
# clusters are looked for and a cluster is taken for gone.
BY_CHANCE = 1e-3

# From this share of a cluster's rows on, those that fit nowhere are worth a warning. A cluster that moves has some,
# because its mean follows late. Chosen on one bending half moon: labels were still right at a sixth.
FAR_SHARE = 0.1

# Updates are sent in half precision, as the centres of `protocol="cores"`: its error is far below that of a mean.
FEW_DIGITS = StatisticsProtocol(basis=False, precision="half")

# How far a site's rows would move a centre is sent in steps of 1/127 of its largest move in any feature. The error is
# below half a percent of that move, which is at least as large as the error of the site's mean.
MOVES = "byte"

# Centres that moved by fewer standard errors than this are not moved again: the next step is a small part of this one.
SETTLED = 3.0


@dataclass(frozen=True, eq=False)
class Found(Entry):
    """Results of the first exchange of an update, and the rows of the last one.

    Parameters
    ----------
    memory : Memory
        What the model remembered, after forgetting.
    weights : array of shape (c, s)
        Of the rows of the last exchange.
    spread : ClusterSpread
        Of the same rows.
    strays : array of shape (c,)
        Rows of the last exchange that fit nowhere, by the cluster that they are nearest to.
    between : array of shape (c, 2)
        Rows of the last exchange at each centre, and in the middle between it and the nearest other one.
    compared : array of shape (c, 5)
        How rows compare with those that sites remember, over all sites, by the model before the update.
    expected : array of shape (c,)
        Rows that there would be if every site had the shares of clusters that it remembers. A site that remembers
        nothing expects none.
    sites : dict of str to array
        Comparisons of each site, where single sites are seen.
    """

    memory: Memory
    weights: FloatArray
    spread: ClusterSpread
    strays: FloatArray
    between: FloatArray
    compared: FloatArray
    expected: FloatArray
    sites: dict[str, FloatArray] = field(default_factory=dict)

    def with_clusters(self, more: int) -> Found:
        """Return the same with more clusters, which come last and have no rows yet."""
        n_clusters, n_views = len(self.weights) + more, self.weights.shape[1]
        last = Memory(self.weights, self.spread).extend(n_clusters, n_views)
        strays, expected = np.pad(self.strays, (0, more)), np.pad(self.expected, (0, more))
        between = np.pad(self.between, ((0, more), (0, 0)))
        known = replace(self, strays=strays, between=between, expected=expected)
        return replace(known, memory=self.memory.extend(n_clusters, n_views), weights=last.weights, spread=last.spread)

    def find_gone(self) -> list[int]:
        """Find clusters that are gone: almost no rows are left of them, or only rows between other clusters.

        Of the second kind is a cluster that has surely lost rows at the sites that have new ones, and whose centre has
        surely fewer rows around it than there are in the middle between it and the next centre: they are the tail of
        that cluster. Rows of sites that take no part, or that had none of it before, do not say that it is gone.
        """
        few = self.after.spread.rows + self.strays < FEWEST_ROWS
        lost = poisson.cdf(self.spread.rows, self.expected) < BY_CHANCE
        at, between = self.between.T
        tail = are_fewer(at, between)
        return [int(cluster) for cluster in np.flatnonzero(few | (lost & tail))]

    @property
    def after(self) -> Memory:
        """Memory of the model after the update."""
        return self.memory.add(self.weights, self.spread)


@dataclass(frozen=True)
class KeptFrame(Frame):
    """The calibration in an update: a site takes out of new rows what it took out of those that it had in the fit.

    New rows are few, and may be of other clusters: what they differ by from earlier rows is drift, and no calibration.
    A site that was not there measures its rows, as in a fit.
    """

    def measure(self, site: Site) -> FloatArray:
        shape = 2, sum(site.board.get(References).widths)
        known = [own.past for own in site.memory.find(OwnPast)]
        if not known:  # of the run before, if that was of this model
            current = site.board.get(CurrentModel).model.parameters(site.board.get(References).widths)
            known = [own.past for own in site.memory.find(EarlierPast) if own.past.fits(current)]
        kept = [past.frame for past in known if past.frame.shape == shape]
        return kept[0] if kept else super().measure(site)


@dataclass(frozen=True)
class Recall(ServerPhase):
    """Put the model that is updated on the board, as after its rounds; views new to it were described before."""

    name: ClassVar[str] = "recall"

    model: FittedModel
    memory: Memory  # after forgetting
    calibrations: tuple[Calibration, ...]
    n_sites: int
    bounds: Any = None  # of features, where noise is sized by them

    def begin(self, board: Board) -> Board:
        model, known = self.model, set(self.model.view_names)
        references = model.references
        for calibration in self.calibrations:
            references = calibration.before(references)
        names, columns, moments = model.view_names, model.columns, tuple(map(Moments.none, model.widths))
        if board.has(References):  # there are views that the model does not know
            described = zip(
                board.get(Schema).names,
                board.get(References).references,
                board.get(Population).columns,
                board.get(Population).moments,
                strict=True,
            )
            new = [part for part in described if part[0] not in known]
            names, references = (*names, *(p[0] for p in new)), (*references, *(p[1] for p in new))
            columns, moments = (*columns, *(p[2] for p in new)), (*moments, *(p[3] for p in new))
        rows = next((entry.rows for entry in board.find(Population)), float(self.memory.spread.rows.sum()))
        widths = [reference.width for reference in references]
        reach = REACH * np.sqrt(max(rows, float(self.memory.spread.rows.sum()), 1.0))
        start = _add_views(model.parameters.free(), widths)
        memory = self.memory.extend(start.n_clusters, len(widths))
        return board.put(
            Schema(names, tuple(map(columns_code, columns))),
            References(references),
            Population(self.n_sites, columns, moments, rows),
            Space(tuple(np.full(width, reach) for width in widths)),
            *map(KeptFrame, self.calibrations),
            Minimisation(Progress(RememberingParameters.of(start, memory.weights))),
            Found(
                memory,
                memory.weights,
                memory.spread,
                np.zeros(start.n_clusters),
                np.zeros((start.n_clusters, 2)),
                np.zeros((0, COMPARED)),
                np.zeros(start.n_clusters),
            ),
            *self._hold_bounds(references),
        )

    def _hold_bounds(self, references: Sequence[Any]) -> list[Bounds]:
        """Range of the features, if centres with noise are clipped to it."""
        if self.bounds is None:
            return []
        pairs = read_bounds(self.bounds, [reference.width for reference in references])
        low, high = (np.concatenate([pair[end] for pair in pairs]) for end in (0, 1))
        return [Bounds(low, high)]

    def sealed(self, terms: SealedTerms) -> list[Phase[Any, Any]]:
        if terms.noise is None:
            return [terms.seal(CountRows()), self]
        return [replace(self, bounds=terms.public_bounds or (-1e6, 1e6))]


def _add_views(parameters: Parameters, widths: Sequence[int]) -> Parameters:
    """Return the parameters with more views, which have no weight yet and their centres at the mean."""
    new = widths[len(parameters.centers) :]
    if not new:
        return parameters
    more = np.zeros(len(new))
    return replace(
        parameters,
        centers=(*parameters.centers, *(np.zeros((parameters.n_clusters, width)) for width in new)),
        view_weights=np.concatenate([parameters.view_weights, more]),
        view_shares=np.concatenate([parameters.view_shares, more + 1.0]),
    )


@dataclass(frozen=True, eq=False)
class NewViewRequest:
    """Ask for sums of new views, by the clusters of the known views."""

    model: Broadcast
    known: int  # views that the model knows; the others come behind them


@dataclass(frozen=True)
class EnterViews(SumPhase[NewViewRequest]):
    """Find centres in views that are new to the model: means of the rows of each cluster of the known views."""

    name: ClassVar[str] = "enter views"
    with_noise: ClassVar[bool] = False
    unbounded: ClassVar[str] = "a row may be anywhere in a view that the model does not know."

    known: int
    aggregator: Aggregator = PLAIN_SUM

    def is_done(self, board: Board, exchanges: int) -> bool:
        return exchanges > 0 or len(board.get(Space).widths) == self.known

    def request(self, board: Board) -> NewViewRequest:
        return NewViewRequest(Broadcast.of(board.get(Minimisation).parameters), self.known)

    def size(self, board: Board) -> int:
        new = sum(board.get(Space).widths[self.known :])
        return board.get(Minimisation).parameters.n_clusters * 2 * new

    @staticmethod
    def vector(site: Site, request: NewViewRequest) -> FloatArray:
        rows = site.rows()
        seen = site.see(request.model.parameters(rows.widths))
        placed = PlacedRows.of(rows, seen)
        cells = joint_rows(placed.rows, missing=np.nan)[:, sum(rows.widths[: request.known]) :].astype(np.float64)
        has_cell = ~np.isnan(cells)
        return np.hstack([placed.sum(np.nan_to_num(cells)), placed.sum(has_cell.astype(np.float64))]).ravel()

    def check_vector(self, board: Board, values: FloatArray, site: str) -> None:
        sums, counts = np.split(values.reshape(board.get(Minimisation).parameters.n_clusters, -1), 2, axis=1)
        check_sums(counts, sums, np.concatenate(board.get(Space).reach[self.known :]), site)

    def total(self, board: Board, vectors: Sequence[FloatArray]) -> FloatArray:
        c = board.get(Minimisation).parameters.n_clusters
        counts = [np.tile(np.split(values.reshape(c, -1), 2, axis=1)[1], 2).ravel() for values in vectors]
        return self.aggregator.sums(vectors, counts)

    def take(self, board: Board, total: FloatArray, noise: float) -> Board:
        state = board.get(Minimisation)
        start: Any = state.parameters
        sums, counts = np.split(total.reshape(start.n_clusters, -1), 2, axis=1)
        means = np.divide(sums, counts, out=np.zeros_like(sums), where=counts > 0.5)
        centers = (*start.centers[: self.known], *split_joint(means, board.get(Space).widths[self.known :]))
        weights = start.view_weights.copy()
        weights[self.known :] = weights[: self.known].mean()  # as much as a view that is known, on average
        better = replace(start, centers=centers, anchors=centers, view_weights=weights / weights.sum())
        return board.put(replace(state, progress=Progress(better)))


@dataclass(frozen=True, eq=False)
class CurrentModel(Shared):
    """The model that rows are placed by in a round, and until the next round where new clusters are looked for."""

    model: Broadcast
    limits: FloatArray  # squared distances beyond which a row is in no cluster, (c,)
    parents: tuple[int, ...] = ()  # of clusters that came after a fit that embedded rows, as in `Roots`

    @classmethod
    def publish(cls, board: Board) -> Board:
        """Server: put the model of the next round on the board."""
        model = Broadcast.of(board.get(Minimisation).parameters, FEW_DIGITS.precision)
        for found in board.find(FoundEmbedding):
            roots = board.get(Roots).extend(board.get(Minimisation).parameters)
            return board.put(roots, cls(model, roots.squares(found.origin), roots.parents))
        return board.put(cls(model, board.get(Found).memory.spread.limits()))

    def seen_by(self, site: Site) -> Parameters:
        """Site: return the parameters as the site uses them."""
        return site.see(self.model.parameters(site.rows().widths))


@dataclass(frozen=True, eq=False)
class ReviseRequest:
    """Ask for the pulls of rows on the centres, and for distances from these centres and from remembered means."""

    compare: bool  # whether rows are compared with those that sites remember; they are at the model before the update


@dataclass(frozen=True, eq=False)
class FewDigits:
    """A vector that adds over sites, in few bytes: the pulls on each centre, of shape (c, d), and the rest."""

    moves: Table  # pulls over weights, in half precision or in bytes
    rest: Table  # all other numbers in a row, in single precision


@dataclass(frozen=True)
class Revise(SumPhase[ReviseRequest]):
    """Carry out the rounds of an update: memory and new rows together pull the centres."""

    name: ClassVar[str] = "revise"
    reply_type: ClassVar[Any] = FewDigits
    unbounded: ClassVar[str] = "rounds with noise take its place."

    learn_weights: bool
    form: CenterForm
    rounds: int
    aggregator: Aggregator = PLAIN_SUM
    leaves_out: bool = True  # whether a site most of whose rows fit nowhere is left out
    last: bool = True  # whether the model is final after it; else it is one exchange

    def begin(self, board: Board) -> Board:
        return self._go_on(board) if self.last and board.has(Moved) else CurrentModel.publish(board)

    def is_done(self, board: Board, exchanges: int) -> bool:
        return board.has(FinalModel) if self.last else exchanges > 0

    def request(self, board: Board) -> ReviseRequest:
        return ReviseRequest(board.get(Minimisation).progress.iteration == 0)

    def size(self, board: Board) -> int:
        c, widths = board.get(Minimisation).parameters.n_clusters, _widths(board)
        return c * (sum(widths) + len(widths) + TABLE) + len(widths) + 2

    @staticmethod
    def vector(site: Site, request: ReviseRequest) -> FloatArray:
        current = site.board.get(CurrentModel)
        parameters = current.model.parameters(site.rows().widths)
        found = collect_rows(site)
        seen = site.see(parameters)
        placement = place_rows(site)
        placed, strays = placement.placed, placement.strays
        counts = np.bincount(placement.nearest, strays, placed.n_clusters)[:, None]
        inside = placed.select(~strays)
        compared: FloatArray = np.zeros((placed.n_clusters, COMPARED + 1))
        if request.compare:
            compared = _compare_rows(site, inside, seen, parameters)
        between = placement.between if len(placement.between) else inside.count_between(seen)
        table = np.hstack([inside.spread().to_array(), compared, between, counts])
        pulls = [n - w * a for n, w, a in zip(found.numerators, found.weights, parameters.centers, strict=True)]
        lines = np.hstack([found.heights, table])
        rest = np.maximum(found.costs, 0.0), [found.objective, found.rows]
        return np.concatenate([np.hstack(pulls).ravel(), lines.ravel(), *rest])

    @classmethod
    def answer(cls, site: Site, request: ReviseRequest) -> Any:
        values, widths = cls.vector(site, request), site.rows().widths
        pulls, weights, *_ = split_sums(values, len(site.board.get(CurrentModel).limits), widths)
        weights = np.repeat(weights, widths, axis=1)
        moves = np.divide(pulls, weights, out=np.zeros_like(pulls), where=weights > 0)
        return FewDigits(Table.of(moves, MOVES), Table.of(values[None, pulls.size :], "single"))

    def _read(self, board: Board, reply: Any) -> FloatArray:
        """Compute the vector of a site."""
        widths, rest = _widths(board), reply.rest.read()[0]
        moves = reply.moves.read()
        _, weights, *_ = split_sums(np.concatenate([moves.ravel(), rest]), len(moves), widths)
        return np.concatenate([(moves * np.repeat(weights, widths, axis=1)).ravel(), rest])

    def check(self, board: Board, reply: Any, site: str) -> None:
        c, widths = board.get(Minimisation).parameters.n_clusters, _widths(board)
        reply.moves.check((c, sum(widths)), site, "moves")
        reply.rest.check((1, self.size(board) - c * sum(widths)), site, "sums")
        pulls, weights, table, rest = self._split(board, self._read(board, reply))
        rows = float(rest[-1])
        reach = board.get(Space).reach
        possible = 0 <= rows <= MOST_ROWS and np.all(rest >= 0) and np.all(table >= 0) and np.all(weights >= 0)
        most = (1 + ROUNDING) * rows + 1e-6
        heavy = not can_weigh(weights, rows, board.get(References).references, reach)
        if not possible or heavy or table[:, [0, -1]].sum() > most:
            raise MessageError("sums that no rows can have: below zero, or more rows than the site has", site)
        if np.any(np.abs(pulls) > rows * np.concatenate(reach)):
            raise MessageError("pulls on centres that are further than any row is", site)

    def _split(self, board: Board, values: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        return split_sums(values, board.get(Minimisation).parameters.n_clusters, _widths(board))

    def select(self, board: Board, replies: dict[str, Any]) -> tuple[Board, dict[str, Any], dict[str, str]]:
        off = {}
        for site, reply in replies.items():
            _, _, table, _ = self._split(board, self._read(board, reply))
            inside, strays = float(table[:, 0].sum()), float(table[:, -1].sum())
            if strays > MOST_STRAYS * (inside + strays) and strays >= LEAST_ROWS:
                off[site] = f"{strays / (inside + strays):.0%} of its rows fit no cluster: check units and columns"
        if not self.leaves_out or 2 * len(off) >= len(replies):
            return board, replies, {}
        if off:  # they are not asked again
            known = next(board.find(Deviations), Deviations((), {}))
            board = board.put(replace(known, excluded=known.excluded | off))
        return board, {site: reply for site, reply in replies.items() if site not in off}, off

    def combine(self, board: Board, replies: Mapping[str, Any]) -> Board:
        vectors = {site: self._read(board, reply) for site, reply in replies.items()}
        total = self.aggregator.sums(list(vectors.values()), [np.full(len(v), v[-1]) for v in vectors.values()])
        if self.request(board).compare:
            sites = {site: self._split(board, values)[2][:, SPREAD:-4] for site, values in vectors.items()}
            board = board.put(replace(board.get(Found), sites=sites))
        return self.take(board, total, 0.0)

    def take(self, board: Board, total: FloatArray, noise: float) -> Board:
        state, found = board.get(Minimisation), board.get(Found)
        before = state.parameters
        pulls, weights, table, rest = self._split(board, total)
        weights, table, rest = np.maximum(weights, 0.0), np.maximum(table, 0.0), np.maximum(rest, 0.0)
        if not rest[-1] > 0:
            raise DataError("No site has a new row: there is nothing to update the model with.")
        widths = [part.shape[1] for part in before.centers]
        # pulls refer to the centres as they were sent, that is rounded
        sent = round_as_sent(np.hstack(before.centers), FEW_DIGITS.precision)
        numerators = split_joint(pulls + np.repeat(weights, widths, axis=1) * sent, widths)
        heights = tuple(weights.T[:, :, None])
        statistics = Statistics(numerators, heights, rest[:-2], table[:, 0], float(rest[-2]), float(rest[-1]))
        better = improve(before, statistics, learn_weights=self.learn_weights)
        progress = replace(state.progress, parameters=better, iteration=state.progress.iteration + 1)
        progress = replace(progress, objective=statistics.objective)
        if self.request(board).compare:
            found = replace(found, compared=table[:, SPREAD:-4], expected=table[:, -4])
        spread = ClusterSpread.from_array(table[:, :SPREAD])
        found = replace(
            found,
            weights=weights,
            spread=spread,
            strays=table[:, -1],
            between=table[:, -3:-1],
        )
        board = board.put(Minimisation(progress), found, Moved(before))
        return self._go_on(board) if self.last else board

    def _go_on(self, board: Board) -> Board:
        """Return the board with the final model, or with the model of the next round."""
        return self._publish(board) if self._is_settled(board) else CurrentModel.publish(board)

    def _is_settled(self, board: Board) -> bool:
        """Tell whether to stop: centres moved by less than their error, or the most rounds are done.

        The error of a mean is the spread of rows over the root of their number.
        """
        state, found = board.get(Minimisation), board.get(Found)
        if state.progress.iteration >= self.rounds:
            return True
        moved: Parameters = board.get(Moved).before
        if moved.n_clusters != state.parameters.n_clusters:
            return False
        after, scale = found.after.spread, find_scale(state.parameters)
        step = np.hstack(state.parameters.centers) - np.hstack(moved.centers)
        error = after.squares / np.square(np.maximum(after.rows, 1.0))
        return bool(np.all(np.square(step * scale).sum(axis=1) <= SETTLED**2 * error))

    def _publish(self, board: Board) -> Board:
        """Return the board with the final model; clusters with almost no rows are marked as gone."""
        state, found = board.get(Minimisation), board.get(Found)
        after = found.after
        gone = found.find_gone()
        parameters = state.parameters.free()
        if len(gone) < parameters.n_clusters:
            parameters = parameters.without(gone)
        count = state.progress.iteration
        reason = f"Updated in {count} round{'s' * (count != 1)}."
        progress = replace(state.progress, parameters=parameters, converged=True, stop_reason=reason)
        board = board.put(Minimisation(progress))
        model, parameters = FEW_DIGITS.finish(board)
        parameters = self.form.constrain(parameters, board.get(Schema).names)
        return board.put(FinalModel(model), FinalParameters(parameters), Remembered(after))

    def sealed(self, terms: SealedTerms) -> list[Phase[Any, Any]]:
        if terms.noise is None:
            return [terms.seal(self)]
        if not self.last:
            return []
        rounds = NoisyUpdate(self.learn_weights, self.form, terms.noise, terms.noise.rounds)
        return [terms.seal(rounds), KeepMemory()]


@dataclass(frozen=True)
class NoisyUpdate(NoisyRounds):
    """Carry out the rounds of an update with noise. They share its whole budget: no start has to be found."""

    name: ClassVar[str] = UPDATE + "round"


@dataclass(frozen=True)
class KeepMemory(ServerPhase):
    """Keep the memory after rounds with noise: the weights of the last round, added to the earlier memory."""

    name: ClassVar[str] = "keep memory"

    def begin(self, board: Board) -> Board:
        final, before = board.get(FinalParameters).parameters.free(), board.get(Found).memory
        new = board.get(Remembered).memory
        return board.put(FinalParameters(final), Remembered(before.add(new.weights, new.spread)))


def split_sums(
    values: FloatArray, n_clusters: int, widths: Sequence[int]
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Split a vector into pulls, weights and the table of clusters, one line per cluster each, and the rest."""
    pulls, lines, rest = np.split(values, [n_clusters * sum(widths), len(values) - len(widths) - 2])
    weights, table = np.split(lines.reshape(n_clusters, -1), [len(widths)], axis=1)
    return pulls.reshape(n_clusters, -1), weights, table, rest


def _widths(board: Board) -> tuple[int, ...]:
    return board.get(Space).widths


@dataclass(frozen=True, eq=False)
class Moved(Entry):
    """Return the parameters before the last step."""

    before: Parameters


def check_sums(counts: FloatArray, sums: FloatArray, limits: FloatArray, site: str) -> None:
    """Refuse sums that so many rows within the limits cannot have."""
    if np.any(counts < 0) or np.any(counts > MOST_ROWS) or np.any(np.abs(sums) > counts * limits):
        raise MessageError("sums of rows that no rows can have", site)


def are_fewer(some: FloatArray, others: FloatArray, sure: float = SURE) -> BoolArray:
    """Tell whether counts of rows are below others, by so many standard deviations."""
    return np.asarray((others - some) / np.sqrt(np.maximum(others + some, 1.0)) > sure)


def how_sure(board: Board) -> float:
    """Return by how many standard deviations a gap between rows must be sure, for a cluster to be new.

    Embedded clusters may have any shape: a gap in one says little, unless chance does not explain it (`BY_CHANCE`).
    """
    return float(norm.isf(BY_CHANCE)) if board.has(FoundEmbedding) else SURE


def find_far(found: Found) -> list[int]:
    """Find clusters near which many rows of the last exchange fit nowhere: more than chance explains, and a share."""
    rows = found.spread.rows + found.strays
    many = poisson.sf(found.strays - 0.5, RARE * rows) < BY_CHANCE
    return [int(cluster) for cluster in np.flatnonzero(many & (found.strays > FAR_SHARE * rows))]


def find_strays(placed: PlacedRows, parameters: Parameters, limits: FloatArray) -> tuple[IntArray, Any]:
    """Return the nearest cluster of each row, in units of its limit, and whether the row is beyond all limits."""
    apart = placed.squared_distances(parameters) / np.maximum(limits, 1e-300)
    return apart.argmin(axis=1), apart.min(axis=1, initial=np.inf) > 1.0


@dataclass(frozen=True, eq=False)
class Placement:
    """A site's rows as the current model places them."""

    placed: PlacedRows
    nearest: IntArray  # the cluster that each row is nearest to, in units of its limit
    strays: Any  # which rows are beyond all limits
    reach: FloatArray  # of embedded rows, the distance to the nearest anchor; else empty
    between: FloatArray  # of embedded rows, those at each centre, and between it and the next one; else empty

    def follow(self, away: FloatArray, direction: FloatArray, reaches: FloatArray) -> FloatArray:
        """Compute how far on the way rows are from a cluster, 0, to where rows near it fit nowhere, 1.

        The way is a line from the centre. In an embedding a cluster has any shape, and the way is from its anchors.
        """
        if len(self.reach):
            near, far = reaches
            return np.asarray((self.reach - near) / max(float(far - near), 1e-300))
        across = direction * np.square(self.placed.scale)
        return np.asarray(away @ across / max(float(direction @ across), 1e-300))

    def sum_reach(self, cluster: int) -> list[float]:
        """Sum distances to anchors, over rows in a cluster and over rows that are near it and fit nowhere."""
        if not len(self.reach):
            return [0.0, 0.0]
        inside = ~self.strays & (self.placed.labels == cluster)
        outside = self.strays & (self.nearest == cluster)
        return [float(self.reach[inside].sum()), float(self.reach[outside].sum())]


def place_rows(site: Site) -> Placement:
    """Place a site's rows by the current model."""
    current = site.board.get(CurrentModel)
    seen = current.seen_by(site)
    for found in site.board.find(FoundEmbedding):
        place = partial(place_embedded, site, found, seen, current.parents)
        placed, reach, between = site.derive(current, place)
        return Placement(placed, placed.labels, np.square(reach) > current.limits[placed.labels], reach, between)
    placed = PlacedRows.of(site.rows(), seen)
    return Placement(placed, *find_strays(placed, seen, current.limits), np.zeros(0), np.zeros((0, 2)))


def collect_rows(site: Site) -> Statistics:
    """Compute how a site's rows pull the centres of the current model; those that an embedding places pull as one."""
    current = site.board.get(CurrentModel)
    parameters = current.model.parameters(site.rows().widths)
    if not site.board.has(FoundEmbedding):
        return site.collect(parameters, follow=True)
    placement = place_rows(site)
    share = site.rows().n_rows / max(len(placement.placed.labels), 1)
    found = placement.placed.select(~placement.strays).statistics(current.seen_by(site)).scaled(share)
    return replace(found, rows=float(site.rows().n_rows))


def _compare_rows(site: Site, placed: PlacedRows, seen: Parameters, common: Parameters) -> FloatArray:
    """Compare a site's rows with its memory of earlier rows, and count those that it expects by it.

    Memory of another model is ignored.
    """
    for earlier in site.memory.find(EarlierPast):
        site.memory = site.memory.drop(EarlierPast).put(OwnPast(earlier.past))
    for known in site.memory.find(OwnPast):
        if known.past.fits(common):
            compared = known.past.compare(SitePast.of(placed, seen, common), placed.scale)
            past = known.past.rows[:, None]
            return np.hstack([compared, placed.count().sum() * past / max(past.sum(), 1e-300)])
        site.memory = site.memory.drop(OwnPast)
    return np.zeros((placed.n_clusters, COMPARED + 1))
