"""Candidates: sites send means of groups of their rows, and the server chooses a start among them (k-FED)."""

from __future__ import annotations

import zlib
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np

from fedhk._random import seeded
from fedhk._typing import FloatArray
from fedhk.errors import DataError, MessageError
from fedhk.federation.aggregators import Aggregator, choose_candidates
from fedhk.federation.board import Board
from fedhk.federation.entries import Population, References, Schema, Space
from fedhk.federation.participation import Participation
from fedhk.federation.phases.base import Phase, ServerPhase, SumPhase
from fedhk.federation.phases.frame import Frame
from fedhk.federation.phases.judge_starts import JudgeStarts
from fedhk.federation.phases.noisy_groups import NoisyGroups
from fedhk.federation.phases.row_metric import check_metric, find_metric
from fedhk.federation.phases.sum_basis import (
    BasisGroups,
    BasisMoments,
    BasisViewDistances,
    EnterBasis,
    Sketch,
    Span,
)
from fedhk.federation.phases.sum_start import (
    Cells,
    Directions,
    Groups,
    OwnCells,
    Products,
    PublicStart,
    StartFromSums,
    ViewDistances,
    WeighStart,
)
from fedhk.federation.plausible import MOST_ROWS, check_points, check_spreads
from fedhk.federation.protocols.base import Protocol
from fedhk.federation.protocols.statistics import BasisStatistics, Statistics
from fedhk.federation.sealed import SealedTerms
from fedhk.federation.site import Site
from fedhk.federation.table import Table, check_array
from fedhk.model.parameters import CenterForm
from fedhk.model.rows import take
from fedhk.personal.objective import personal_objective
from fedhk.starts.candidates import (
    SITE_CANDIDATES,
    Candidates,
    candidate_rows,
    candidate_starts,
    candidates_per_site,
    count_by_share,
    site_candidates,
)
from fedhk.starts.settings import Settings

# Passes of k-means, over all sites together, that make groups of rows under masks. Each is two sums.
GROUP_PASSES = 3


@dataclass(frozen=True)
class CandidatesRequest:
    """Ask for candidates."""

    count: int  # how many each site is asked for
    share: float  # how many for each of its rows; where this is more than `count`, it counts
    seed: int
    precision: str  # precision in which candidates are sent
    split: bool = False  # whether large groups of rows are split until there are so many


@dataclass(frozen=True, eq=False)
class CandidatesReply:
    """Means of groups of at least two rows, and their weights."""

    points: Table  # of shape (k, features), in model units; NaN where no row of the group has the feature
    sizes: FloatArray  # weight of the rows of each group
    spreads: FloatArray  # mean squared distance of the rows of each group to its mean, per view


@dataclass(frozen=True)
class AskCandidates(Phase[CandidatesRequest, CandidatesReply]):
    """Collect candidates from all sites; a subclass makes use of them in `start`."""

    name: ClassVar[str] = "candidates"

    settings: Settings
    protocol: Protocol  # of the rounds after it
    aggregator: Aggregator
    seed: int
    workers: int = 1  # threads for the server's own work
    groups: bool = True  # with noise: whether the first rounds may have more centres

    def request(self, board: Board) -> CandidatesRequest:
        precision = self.protocol.resolve(board, self.settings).candidate_precision
        count = candidates_per_site(self.settings.n_clusters, board.get(Population).n_sites, few=precision != "double")
        return CandidatesRequest(count, 0.0, self.seed, precision)

    @staticmethod
    def answer(site: Site, request: CandidatesRequest) -> CandidatesReply:
        rows = site.rows()
        count = max(request.count, count_by_share(rows.n_rows, request.share))
        random_state = seeded(request.seed, zlib.crc32(site.name.encode()))
        metric = check_metric(find_metric(site.board), rows.widths)
        stretch = partial(metric.stretch_joint, widths=rows.widths) if metric else None
        found = site_candidates(rows, count, random_state, site.least_group, split=request.split, stretch=stretch)
        return CandidatesReply(Table.of(found.points, request.precision), found.sizes, found.spreads)

    def check(self, board: Board, reply: CandidatesReply, site: str) -> None:
        space = board.get(Space)
        reply.points.check((None, sum(space.widths)), site, "candidates", finite=False)
        count = len(reply.points.values)
        check_array(reply.sizes, (count,), site, "weights of candidates", non_negative=True)
        check_array(reply.spreads, (count, len(space.widths)), site, "spreads of candidates", non_negative=True)
        most = self.most_candidates(board)
        if count > most:
            raise MessageError(f"{count} candidates, at most {most} were asked for", site)
        if np.any(reply.sizes <= 0) or reply.sizes.sum() > MOST_ROWS:
            raise MessageError("candidates with weights that no rows can have", site)
        points = reply.points.read()
        if np.isinf(points).any():
            raise MessageError("candidates with infinite values", site)
        check_points(points, space.reach, site)
        check_spreads(reply.spreads, space.reach, site)

    def participants(self, board: Board, sites: Sequence[str], participation: Participation, seed: Any) -> list[str]:
        return participation.draw_sample(sites, seed)

    def combine(self, board: Board, replies: Mapping[str, CandidatesReply]) -> Board:
        read = [Candidates(reply.points.read(), reply.sizes, reply.spreads) for reply in replies.values()]
        found = choose_candidates(self.aggregator, read)
        if not sum([len(candidates.sizes) for candidates in found]):
            if sent := sum([len(candidates.sizes) for candidates in read]):
                raise DataError(f"{self.aggregator!r}: candidates() left none of the {sent} that sites sent.")
            raise DataError(
                "No site could give candidates for a start: a candidate is a mean of at least 2 rows, and no site has "
                "2. Give centres as init, or join sites."
            )
        return self.start(board, found)

    def most_candidates(self, board: Board) -> int:
        """Return the most candidates that one site may send."""
        return self.request(board).count

    @abstractmethod
    def start(self, board: Board, found: list[Candidates]) -> Board:
        """Server: return the board with what the candidates of the sites give."""

    def sealed(self, terms: SealedTerms) -> list[Phase[Any, Any]]:
        settings, protocol = self.settings, self.protocol.as_sums(terms.reason)
        known: list[Phase[Any, Any]] = []
        if terms.noise is None:
            sums = _masked_sums(settings, protocol, self.seed, terms)
        else:
            sums = [Directions(settings, self.seed), Cells()]
            if terms.public is not None:
                known, sums = [PublicStart(terms.public)], []
            elif not isinstance(protocol, BasisStatistics) and terms.noise.unit.has_spare:
                known = [WeighStart(settings, self.seed, terms)]
            if settings.view_weights == "auto":  # points along a few directions do not show what single views say
                settings = replace(settings, view_weights="uniform")
        if not isinstance(protocol, BasisStatistics):
            start = self._choose_start(settings, terms)
            return [*known, *map(terms.seal, [*sums, *self._noisy_groups(settings, terms)]), start]
        # the low-rank form is fitted to the first sums of a round: candidates do not show it
        start = self._choose_start(replace(settings, form=CenterForm()), terms)
        return [*map(terms.seal, sums), start, EnterBasis(protocol)]

    def _choose_start(self, settings: Settings, terms: SealedTerms) -> Phase[Any, Any]:
        """Return the phase that chooses a start on the candidates that sums gave."""
        search = StartFromSums(settings, self.seed, self.workers)
        return search if terms.noise is not None else terms.seal(JudgeStarts(search))

    def _noisy_groups(self, settings: Settings, terms: SealedTerms) -> list[SumPhase[Any]]:
        """Return the first rounds with noise, which have more centres; none where a share of the budget is missing."""
        if terms.noise is None or terms.public is not None or not (self.groups and terms.noise.unit.has_spare):
            return []
        rounds = (False, CenterForm(), terms.noise, terms.noise.rounds)
        return [NoisyGroups(*rounds, settings, self.seed, self.workers, terms)]


@dataclass(frozen=True)
class ChooseStart(AskCandidates):
    """Collect candidates from all sites, and choose the best of many starts on them.

    Where sites keep offsets, starts are judged by how well sites can make them their own: clusters that are the same
    thing at every site win over clusters that merely are tight.
    """

    def start(self, board: Board, found: list[Candidates]) -> Board:
        rows = candidate_rows(found, board.get(References).references, board.get(Schema).names)
        settings, judge = self.settings, None
        if any(frame.calibration.offsets for frame in board.find(Frame)):
            parts = np.split(np.arange(rows.n_rows), np.cumsum([len(part.sizes) for part in found])[:-1])
            judge = partial(personal_objective, [take(rows, part) for part in parts if len(part)])
        starts = candidate_starts(settings.n_init, rows.n_rows, sum(rows.widths), settings.n_clusters)
        random_state = np.random.RandomState(self.seed)
        start = settings.start(rows, random_state, self.workers, n_init=starts, judge=judge)
        return self.protocol.begin(board, settings, start, rows)


@dataclass(frozen=True)
class GivenStart(ServerPhase):
    """Start from centres that were given, without any exchange."""

    name: ClassVar[str] = "given start"

    settings: Settings
    protocol: Protocol
    seed: int = 0  # of a basis, where it comes from sums

    def begin(self, board: Board) -> Board:
        start = self.settings.given_start(board.get(References).references, board.get(Schema).names)
        return self.protocol.begin(board, self.settings, start, None)

    def sealed(self, terms: SealedTerms) -> list[Phase[Any, Any]]:
        protocol = self.protocol.as_sums(terms.reason)
        if not isinstance(protocol, BasisStatistics):
            return [replace(self, protocol=protocol)]
        sums = map(terms.seal, _leading_sums(self.settings, protocol, self.seed, terms))
        return [*sums, replace(self, protocol=Statistics(basis=False)), EnterBasis(protocol)]


def _leading_sums(settings: Settings, protocol: BasisStatistics, seed: int, terms: SealedTerms) -> list[SumPhase[Any]]:
    """Return the sums from which the leading directions of a basis are found."""
    if terms.noise is not None:
        return [Directions(settings, seed)]
    return [Sketch(settings, seed), Span(settings, seed, protocol.precision)]


def _masked_sums(settings: Settings, protocol: Protocol, seed: int, terms: SealedTerms) -> list[SumPhase[Any]]:
    """Return the sums under masks from which candidates for a start are found, in the coordinates of the rounds."""
    if isinstance(protocol, BasisStatistics):
        leading = [*_leading_sums(settings, protocol, seed, terms), BasisMoments(settings, seed)]
        groups: Groups = BasisGroups(settings, seed)
        views: ViewDistances = BasisViewDistances(settings, seed)
    else:
        leading, groups, views = [Products(settings, seed)], Groups(settings, seed), ViewDistances(settings, seed)
    passes: list[SumPhase[Any]] = [OwnCells(settings, seed), groups]
    return [*leading, *passes * GROUP_PASSES, *([views] if settings.view_weights == "auto" else [])]


def row_groups(settings: Settings, count: int, seed: int) -> list[SumPhase[Any]]:
    """The sums under masks that the means of so many groups of the rows of all sites come from."""
    parts = replace(settings, n_clusters=max(settings.n_clusters, count // SITE_CANDIDATES))
    passes: list[SumPhase[Any]] = [Cells(), Groups(parts, seed)]
    return [Products(parts, seed), *passes * GROUP_PASSES]
