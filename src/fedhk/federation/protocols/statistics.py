"""The statistics protocol: sites send sums over their rows, and the server adds them.

Any split of the rows over sites gives the model of the pooled rows.

In a basis, orthonormal columns E_h of shape (d_h, q_h) that the server sends once, a site needs to say only
E_h^T (N_kh - W_kh * a_kh) and max_j W_kjh: q_h numbers per cluster and view instead of d_h. They add over sites, and
the server's step on them is the step on full statistics restricted to the span of E_h, so that J still falls.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import Any, ClassVar

import numpy as np

from fedhk._typing import FloatArray
from fedhk.errors import MessageError
from fedhk.federation.aggregators import combine_statistics
from fedhk.federation.board import Board
from fedhk.federation.entries import Basis, Broadcast, LeadingSpans, Minimisation, Schema, Space, check_row_count
from fedhk.federation.plausible import ROUNDING, check_statistics
from fedhk.federation.protocols.base import Protocol, RoundContext, RoundReply, RoundRequest
from fedhk.federation.several import NOT_ADDED, check_addable
from fedhk.federation.site import Site
from fedhk.federation.table import PRECISIONS, Table, at_least_half, check_array, round_as_sent
from fedhk.model.descent import improve
from fedhk.model.parameters import Parameters
from fedhk.model.passes import Passes
from fedhk.model.rows import Rows, joint_rows, split_joint
from fedhk.model.statistics import Statistics as RowStatistics
from fedhk.model.statistics import match_shapes
from fedhk.starts.kmeans import leading_axes
from fedhk.starts.settings import Settings

# Directions beyond those of the centres: each must hold this share of what the centres leave, so that centres have
# somewhere to move to; at most as many as the centres may have themselves (clusters, or their rank), no more than ten.
EXTRA_SHARE, MOST_EXTRA = 0.02, 10

# Sine of the angle to a span below which a direction counts as inside it, to rounding.
LEAST_SINE = 1e-3

# Rounds after which a basis is made anew where no candidates could give one.
REFRESH_GIVEN = 5


@dataclass(frozen=True, eq=False)
class StatisticsReply(RoundReply):
    """Statistics of a site's rows.

    In double precision `sums` are sums over rows, the numerators. In lower precision they are means, that is sums
    divided by weights: their size is that of the rows, so that they can be rounded. In a basis, they are how far rows
    pull each centre, divided by its weight.
    """

    sums: Table  # of shape (c, features) or (c, directions), all views side by side
    # of shape (c, 1) or (c, d_h) each, as in `fedhk.model.statistics.Statistics`; in a basis their largest
    weights: tuple[FloatArray, ...]
    costs: FloatArray
    masses: FloatArray
    objective: float
    rows: float

    @staticmethod
    def add(replies: Sequence[StatisticsReply]) -> StatisticsReply:
        for reply in replies:
            if reply.sums.values.dtype != np.float64 or len(reply.weights) != len(replies[0].weights):
                raise MessageError(NOT_ADDED)
        check_addable([reply.sums.values for reply in replies])
        check_addable([reply.costs for reply in replies])
        check_addable([reply.masses for reply in replies])
        sums = [((r.sums.values,), r.weights, r.costs, r.masses, r.objective, r.rows) for r in replies]
        total = reduce(add, itertools.starmap(RowStatistics, sums))
        table = Table(total.numerators[0], np.zeros(0))
        return StatisticsReply(table, total.weights, total.costs, total.masses, total.objective, total.rows)

    def check(self, n_clusters: int, widths: Sequence[int], site: str) -> None:
        """Refuse arrays of another shape, values that are not finite, and negative values where there can be none."""
        self.sums.check((n_clusters, sum(widths)), site, "sums")
        if len(self.weights) != len(widths):
            raise MessageError(f"weights of {len(self.weights)} views, expected {len(widths)}", site)
        for weights, width in zip(self.weights, widths, strict=True):
            columns = weights.shape[1] if weights.ndim == 2 else None
            if columns not in (1, width):
                raise MessageError(f"weights with {columns} columns, expected 1 or {width}", site)
            check_array(weights, (n_clusters, columns), site, "weights", non_negative=True)
        check_array(self.costs, (len(widths),), site, "costs", non_negative=True)
        check_array(self.masses, (n_clusters,), site, "masses", non_negative=True)
        check_array(np.array([self.objective, self.rows]), (2,), site, "objective and rows", non_negative=True)

    def read(self, widths: Sequence[int], *, means: bool) -> RowStatistics:
        """Return the statistics; `means` says that sums were sent divided by their weights."""
        parts = split_joint(self.sums.read(), widths)
        if means:
            parts = tuple(map(np.multiply, parts, self.weights))
        return RowStatistics(parts, self.weights, self.costs, self.masses, self.objective, self.rows)


def _reply(statistics: RowStatistics, parts: Sequence[FloatArray], weights: Any, precision: str) -> StatisticsReply:
    # in float32 the cost of rows on centres may round to just below zero
    costs = np.maximum(statistics.costs, 0.0)
    sums = Table.of(np.hstack(parts), precision)
    return StatisticsReply(sums, tuple(weights), costs, statistics.masses, statistics.objective, statistics.rows)


@dataclass(frozen=True, eq=False)
class StatisticsRequest(RoundRequest):
    """Ask for statistics in all features."""

    model: Broadcast
    precision: str  # what the answer is rounded to

    def answer(self, site: Site) -> StatisticsReply:
        basis = next(site.board.find(Basis), None)
        statistics = site.collect(self.model.parameters(site.rows().widths, basis), follow=True)
        parts = statistics.numerators
        if self.precision != "double":
            parts = tuple(
                np.divide(n, w, out=np.zeros(n.shape), where=np.broadcast_to(w > 0, n.shape))
                for n, w in zip(statistics.numerators, statistics.weights, strict=True)
            )
        return _reply(statistics, parts, statistics.weights, self.precision)


@dataclass(frozen=True, eq=False)
class MovesRequest(StatisticsRequest):
    """Ask for statistics in the basis: the pull of rows on each centre, along the directions of the basis."""

    def answer(self, site: Site) -> StatisticsReply:
        statistics, pulls = collect_pulls(site, self.model)
        heights = [height[:, None] for height in statistics.heights.T]
        moves = [
            np.divide(pull, height, out=np.zeros(pull.shape), where=height > 0)
            for pull, height in zip(pulls, heights, strict=True)
        ]
        return _reply(statistics, moves, heights, self.precision)


def collect_pulls(site: Site, model: Broadcast, *, in_features: bool = False) -> tuple[RowStatistics, list[FloatArray]]:
    """Compute the statistics of a site's rows at centres in the basis, and the pulls E_h^T (N - W a), per view.

    The pulls are N - W a where they are asked for in all features.
    """
    basis, widths = site.board.get(Basis), site.rows().widths
    columns, parameters = basis.columns_of(widths), model.parameters(widths, basis)
    found = site.collect(parameters, follow=True)
    parts = zip(found.numerators, found.weights, parameters.centers, strict=True)
    pulls: list[FloatArray] = [n - w * a for n, w, a in parts]
    return found, pulls if in_features else [pull @ e for pull, e in zip(pulls, columns, strict=True)]


@dataclass(frozen=True)
class Statistics(Protocol):
    """Send sums over rows: exact, and the same for any split of the rows over sites.

    Parameters
    ----------
    basis : bool or "auto", default=False
        Whether sums are sent in a basis of few directions that sites get once: fewer bytes, with noise less of it, and
        centres stay in the span of the basis. "auto" uses a basis where a low rank constrains the centres, whose
        directions then are those of the rank and as many more; else where it at least halves the numbers that are sent.
        It never does where a rank was given that is too high to constrain the centres. With noise or masks it goes by
        the widths of the views alone.
    precision : {"auto", "double", "single", "half", "byte"}, default="auto"
        What numbers are rounded to on the wire. "byte" has 127 steps to either side for what is sent once (candidates,
        the basis) and for how sites want centres to move, where rounding shrinks with the moves; centres themselves go
        in half precision. "auto" is "byte" in a basis, else "double". Under masks sums are whole numbers, and this is
        the precision of the basis and of centres.
    refresh_every : int or None, default=None
        In a basis: rounds after which sites send full sums once and the server makes a new basis; 0 is never. The
        default, None, is 0 where the sites' candidates gave the start, because they give a good basis too, and 5 where
        `init` gives centres. Only in the open: under masks the basis is made anew once rounds in it have settled, with
        noise it grows after each round but the last.

    Examples
    --------
    >>> from fedhk.protocols import Statistics
    >>> Statistics(basis=True, precision="half")
    Statistics(basis=True, precision='half', refresh_every=None)
    """

    reply_type: ClassVar[type[RoundReply]] = StatisticsReply
    descends: ClassVar[bool] = True

    basis: bool | str = False
    precision: str = "auto"
    refresh_every: int | None = None

    def __post_init__(self) -> None:
        if self.basis not in (True, False, "auto"):
            raise ValueError(f"basis={self.basis!r} must be True, False or 'auto'.")
        if not isinstance(self.basis, str):
            self._set("basis", bool(self.basis))
        self._check_word("precision", ("auto", *PRECISIONS))
        self._keep_whole("refresh_every", 0, or_none=True)
        if self.refresh_every is not None and self.basis is False:
            raise ValueError(
                f"refresh_every={self.refresh_every} has no effect with basis=False: there is no basis to make anew. "
                "Leave it out, or use basis=True or 'auto'."
            )

    @property
    def in_basis(self) -> bool:
        return self.basis is True

    def decide(self, settings: Settings, widths: Sequence[int], names: Sequence[str]) -> Statistics:
        if self.basis != "auto":
            return self
        basis = _has_fewer_numbers(settings, widths, settings.form.binds(settings.n_clusters, widths, names))
        return replace(self, basis=True) if basis else Statistics(False, self.precision)

    def as_sums(self, reason: str) -> Statistics:
        if self.in_basis:
            if self.refresh_every:
                raise ValueError(
                    f"refresh_every={self.refresh_every} has no effect with {reason}: when the basis is made anew "
                    "follows from the rounds. Leave refresh_every out."
                )
            return BasisStatistics(True, "byte" if self.precision == "auto" else self.precision, 0)
        if self.precision not in ("auto", "double"):
            raise ValueError(
                f"precision={self.precision!r} has no effect with {reason}: in all features sums are sent as whole "
                "numbers of eight bytes. Leave precision='auto', or use basis=True."
            )
        return Statistics(basis=False, precision="double")

    @property
    def is_exact(self) -> bool:
        return self.precision == self.center_precision == "double"

    @property
    def adds(self) -> bool:
        return self.is_exact  # what is rounded travels as means

    @property
    def candidate_precision(self) -> str:
        return "double" if self.precision == "auto" else self.precision

    @property
    def center_precision(self) -> str:
        """Precision in which centres are sent to the sites."""
        return at_least_half(self.precision)

    def resolve(self, board: Board, settings: Settings) -> Statistics:
        basis = self.basis
        if basis == "auto":
            basis = board.has(Basis) or _saves_numbers(board, settings)
        precision = ("byte" if basis else "double") if self.precision == "auto" else self.precision
        every = self.refresh_every
        if every is None:
            every = 0 if isinstance(settings.init, str) else REFRESH_GIVEN
        return BasisStatistics(True, precision, every) if basis else Statistics(False, precision)

    def begin(self, board: Board, settings: Settings, start: Parameters, rows: Rows | None) -> Board:
        board = super().begin(board, settings, start, rows)
        resolved = self.resolve(board, settings)
        if not isinstance(resolved, BasisStatistics):
            return board
        clouds = [np.zeros((1, w)) for w in board.get(Space).widths] if rows is None else _residuals(rows, start)
        return resolved.rebase(board, start, clouds)

    def request(self, board: Board, context: RoundContext) -> StatisticsRequest:
        model = Broadcast.of(board.get(Minimisation).parameters, self.center_precision)
        return StatisticsRequest(model, self.precision)

    def check(self, board: Board, context: RoundContext, reply: StatisticsReply, site: str) -> None:
        widths, parameters = board.get(Space).widths, self._in_features(board, board.get(Minimisation).parameters)
        reply.check(parameters.n_clusters, widths, site)
        statistics = reply.read(widths, means=self.precision != "double")
        check_statistics(statistics, parameters, board.get(Space).reach, site)
        check_row_count(board, statistics.rows, site)

    def combine(
        self, board: Board, context: RoundContext, replies: Mapping[str, StatisticsReply]
    ) -> tuple[Board, Parameters, float]:
        parameters = self._in_features(board, board.get(Minimisation).parameters)
        widths, means = board.get(Space).widths, self.precision != "double"
        sites = [reply.read(widths, means=means) for reply in replies.values()]
        return board, *_descend(parameters, sites, context)

    def finish(self, board: Board) -> tuple[Broadcast, Parameters]:
        parameters = board.get(Minimisation).parameters
        model = Broadcast.of(parameters, self.center_precision)
        if self.center_precision != "double":
            sent = split_joint(model.centers.read(), [part.shape[1] for part in parameters.centers])
            parameters = replace(parameters, centers=sent)
        return model, self._in_features(board, parameters)

    def _in_features(self, board: Board, parameters: Parameters) -> Parameters:
        """Convert the parameters from the coordinates of the rounds to features."""
        return parameters


@dataclass(frozen=True)
class BasisStatistics(Statistics):
    """Send statistics in a basis, and every few rounds full statistics, to make a new basis."""

    basis: bool | str = True

    @property
    def adds(self) -> bool:
        return False  # pulls travel as means, in any precision

    def enter_basis(self, board: Board) -> Board:
        """Return the board of the first round, from a start in features and the leading directions of all rows."""
        start, spans = board.get(Minimisation).parameters, board.get(LeadingSpans).spans
        joined = list(map(_join_spans, spans, start.spans()))
        same = [columns.shape[1] for columns in joined] == [len(span) for span in spans]
        if same and board.has(Basis):  # it has gone out already, and the start is in it
            return self._move_start(board, start)
        return self._put_basis(board, start, joined)

    def widen_basis(self, board: Board, spans: Sequence[FloatArray]) -> Board:
        """Return the board with parameters in a wider basis: that of the board, extended by the rows of `spans`."""
        held = [columns.T for columns in board.get(Basis).columns]
        return self._put_basis(board, board.get(Minimisation).parameters, list(map(_join_spans, held, spans)))

    def resolve(self, board: Board, settings: Settings) -> Statistics:
        return self

    def _in_features(self, board: Board, parameters: Parameters) -> Parameters:
        return parameters.from_basis(board.get(Basis).columns)

    def request(self, board: Board, context: RoundContext) -> StatisticsRequest:
        full = super().request(board, context)
        return full if self._refreshes(board, context) else MovesRequest(full.model, full.precision)

    def check(self, board: Board, context: RoundContext, reply: StatisticsReply, site: str) -> None:
        if self._refreshes(board, context):
            super().check(board, context, reply, site)
            return
        inner, reach = board.get(Minimisation).parameters, board.get(Space).reach
        widths = [values.shape[1] for values in inner.centers]
        reply.check(inner.n_clusters, widths, site)
        statistics = reply.read(widths, means=True)
        check_statistics(statistics, inner, (), site)
        furthest = [2 * float(np.linalg.norm(limit)) + 1.0 for limit in reach]
        most = (1 + ROUNDING) * statistics.rows
        if np.any(statistics.heights > most * np.array(furthest)):
            raise MessageError(f"weights larger than the {statistics.rows:.6g} rows they are of", site)
        moves = split_joint(reply.sums.read(), widths)
        if any(np.any(np.abs(move) > limit) for move, limit in zip(moves, furthest, strict=True)):
            raise MessageError("pulls on centres that are further than any row is", site)

    def combine(
        self, board: Board, context: RoundContext, replies: Mapping[str, StatisticsReply]
    ) -> tuple[Board, Parameters, float]:
        if self._refreshes(board, context):
            before = self._in_features(board, board.get(Minimisation).parameters)
            board, better, objective = super().combine(board, context, replies)
            clouds = [new - old for new, old in zip(better.centers, before.centers, strict=True)]
            board = self.rebase(board, better, clouds)
            return board, board.get(Minimisation).parameters, objective
        # moves refer to the centres as they were sent, that is rounded
        inner = board.get(Minimisation).parameters
        widths = [values.shape[1] for values in inner.centers]
        seen = split_joint(round_as_sent(np.hstack(inner.centers), self.center_precision), widths)
        sites = []
        for reply in replies.values():
            moved = reply.read(widths, means=True)
            parts = zip(moved.numerators, moved.weights, seen, strict=True)
            sites.append(replace(moved, numerators=tuple(n + w * a for n, w, a in parts)))
        return board, *_descend(inner, sites, context)

    def _refreshes(self, board: Board, context: RoundContext) -> bool:
        """Tell whether this round asks for full statistics; where centres were given, the first round does."""
        done, every = board.get(Minimisation).progress.iteration, self.refresh_every or 0
        given = not isinstance(context.settings.init, str)
        return every > 0 and done % every == 0 and (done > 0 or given)

    def rebase(self, board: Board, parameters: Parameters, clouds: Sequence[FloatArray]) -> Board:
        """Return the board with these parameters in a new basis: the span of the centres and of `clouds`."""
        axes = []
        for span, cloud in zip(parameters.spans(), clouds, strict=True):
            held = leading_axes(span, 1.0)
            rest = cloud - (cloud @ held) @ held.T
            rest = rest * (np.linalg.norm(rest) > LEAST_SINE * np.linalg.norm(cloud))
            extra = leading_axes(rest, EXTRA_SHARE)[:, : min(len(span), MOST_EXTRA)]
            axes.append(np.hstack([held, extra]))
        return self._put_basis(board, parameters, axes)

    def _put_basis(self, board: Board, parameters: Parameters, axes: Sequence[FloatArray]) -> Board:
        """Return the board with these parameters in the basis of orthonormal columns, rounded as it is sent."""
        basis = Basis(tuple(Table.of(columns.T, self.precision) for columns in axes))
        return self._move_start(board.put(basis), parameters)

    def _move_start(self, board: Board, parameters: Parameters) -> Board:
        """Return the board with these parameters in the coordinates of its basis."""
        stand = board.get(Minimisation)
        progress = replace(stand.progress, parameters=parameters.in_basis(board.get(Basis).columns))
        return board.put(replace(stand, progress=progress))


def _join_spans(leading: FloatArray, span: FloatArray) -> FloatArray:
    """Return orthonormal columns that span the orthonormal rows of `leading`, which come first, and those of `span`."""
    held = leading_axes(span, 1.0).T
    _, sines, rest = np.linalg.svd(held - (held @ leading.T) @ leading, full_matrices=False)
    return np.hstack([leading.T, rest[sines > LEAST_SINE].T])


def _descend(parameters: Parameters, sites: Sequence[RowStatistics], context: RoundContext) -> tuple[Parameters, float]:
    """Update the parameters from the statistics of sites at `parameters`; return them and the objective before."""
    total = combine_statistics(context.aggregator, match_shapes(sites), parameters)
    better = improve(parameters, total, learn_weights=context.settings.learn_weights)
    return better, context.aggregator.objective([(site.objective, site.rows) for site in sites])


def _saves_numbers(board: Board, settings: Settings) -> bool:
    """Tell whether a basis has fewer numbers than all features, as far as the board shows before there is a start."""
    widths = board.get(Space).widths
    binds = settings.form.binds(settings.n_clusters, widths, board.get(Schema).names)
    if binds is None and any(stand.parameters.is_constrained for stand in board.find(Minimisation)):
        binds = True
    return _has_fewer_numbers(settings, widths, binds)


def _has_fewer_numbers(settings: Settings, widths: Sequence[int], binds: bool | None) -> bool:
    """Tell whether a basis has at most half of the numbers; if it is known whether the rank binds, whether it does."""
    few = sum(min(width, 2 * settings.n_clusters) for width in widths)
    return 2 * few <= sum(widths) if binds is None else binds


def _residuals(rows: Rows, parameters: Parameters) -> list[FloatArray]:
    """Compute how far candidates are from the centre of their cluster, times the root of their weight."""
    with Passes(rows, parameters.n_clusters, 1) as scan:
        labels = scan.assign(parameters)[1]
    weight: FloatArray = np.ones(rows.n_rows) if rows.sample_weight is None else rows.sample_weight
    parts = split_joint(joint_rows(rows), rows.widths)
    return [
        np.sqrt(weight)[:, None] * (part - centers[labels])
        for part, centers in zip(parts, parameters.centers, strict=True)
    ]
