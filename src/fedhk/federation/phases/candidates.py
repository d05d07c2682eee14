"""Candidates: means of groups of rows of every site, from which the server chooses where to start (k-FED)."""

from __future__ import annotations

import zlib
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from fedhk._random import seeded
from fedhk._typing import FloatArray
from fedhk.errors import DataError, MessageError
from fedhk.federation.aggregators import Aggregator
from fedhk.federation.board import Board
from fedhk.federation.entries import Population, References, Schema, Space
from fedhk.federation.phases.base import Phase, ServerPhase
from fedhk.federation.phases.frame import Frame
from fedhk.federation.phases.scalings import scaling_of
from fedhk.federation.phases.sum_start import Cells, Directions
from fedhk.federation.plausible import MOST_ROWS, check_points, check_spreads
from fedhk.federation.protocols.base import Protocol
from fedhk.federation.sealed import SealedTerms
from fedhk.federation.site import Site
from fedhk.federation.table import Table, check_array
from fedhk.model.passes import Passes
from fedhk.personal.calibration import LEAST_RATIO, MOST_RATIO, measure_frame
from fedhk.personal.frame import SHARES, Search, choose_calibration, move_candidates
from fedhk.starts.candidates import (
    Candidates,
    candidate_rows,
    candidate_starts,
    candidates_per_site,
    count_by_share,
    site_candidates,
)
from fedhk.starts.seeding import LEAST_POWER
from fedhk.starts.settings import Settings


@dataclass(frozen=True)
class CandidatesRequest:
    """Ask for candidates."""

    count: int  # how many each site is asked for
    share: float  # how many for each of its rows; where this is more than `count`, it counts
    seed: int
    precision: str  # what candidates are rounded to on their way
    frame: bool  # whether the site's own mean and spread are asked for, too


@dataclass(frozen=True, eq=False)
class CandidatesReply:
    """Means of groups of at least two rows, their weights, and the site's own mean and spread where asked for."""

    points: Table  # of shape (k, features), in model units; NaN where no row of the group has the feature
    sizes: FloatArray  # weight of the rows of each group
    spreads: FloatArray  # mean squared distance of the rows of each group to its mean, per view
    frame: FloatArray  # (2, features) or (0, 0): the site's own mean, and its spread as a multiple of the common one


@dataclass(frozen=True)
class AskCandidates(Phase[CandidatesRequest, CandidatesReply]):
    """Candidates of all sites; a subclass says what the server makes of them."""

    name: ClassVar[str] = "candidates"
    request_type: ClassVar[Any] = CandidatesRequest
    reply_type: ClassVar[Any] = CandidatesReply

    settings: Settings
    protocol: Protocol  # of the rounds after it
    aggregator: Aggregator
    seed: int
    workers: int = 1  # threads for the server's own work

    wants_frame: ClassVar[bool] = False

    def request(self, board: Board) -> CandidatesRequest:
        precision = self.protocol.resolve(board, self.settings).candidate_precision
        count = candidates_per_site(self.settings.n_clusters, board.get(Population).n_sites, few=precision != "double")
        return CandidatesRequest(count, 0.0, self.seed, precision, self.wants_frame)

    @staticmethod
    def answer(site: Site, request: CandidatesRequest) -> CandidatesReply:
        rows = site.rows()
        count = max(request.count, count_by_share(rows.n_rows, request.share))
        found = site_candidates(rows, count, seeded(request.seed, zlib.crc32(site.name.encode())), site.least_group)
        frame = np.zeros((0, 0), np.float32)
        if request.frame:
            frame = measure_frame(rows.views, rows.references).astype(np.float32)
        return CandidatesReply(Table.of(found.points, request.precision), found.sizes, found.spreads, frame)

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
        if self.wants_frame:
            frame, width = reply.frame, sum(space.widths)
            if frame.shape != (2, width) or frame.dtype.kind != "f" or not np.isfinite(frame).all():
                raise MessageError(f"its own mean and spread are missing, or are not 2 x {width} finite numbers", site)
            if np.any(frame[1] < LEAST_RATIO * 0.99) or np.any(frame[1] > MOST_RATIO * 1.01):
                raise MessageError(f"its spread is not between {LEAST_RATIO} and {MOST_RATIO} of the common one", site)

    def combine(self, board: Board, replies: Mapping[str, CandidatesReply]) -> Board:
        read, frames = [], list[FloatArray]()
        for reply in replies.values():
            read.append(Candidates(reply.points.read(), reply.sizes, reply.spreads))
            frames.append(np.asarray(reply.frame, np.float64))
        found = list(self.aggregator.candidates(read))
        if not sum([len(candidates.sizes) for candidates in found]):
            raise DataError(
                "No site could give candidates for a start: a candidate is a mean of at least 2 rows, and no site has "
                "2. Give centres as init, or join sites."
            )
        return self.start(board, found, frames)

    def most_candidates(self, board: Board) -> int:
        """The most that one site may send."""
        return self.request(board).count

    @abstractmethod
    def start(self, board: Board, found: list[Candidates], frames: list[FloatArray]) -> Board:
        """Server: what follows from the candidates of the sites."""

    def sealed(self, terms: SealedTerms) -> list[Phase[Any, Any]]:
        # what "auto" would choose from candidates, which are not sent here, is the plain value
        settings = self.settings
        weights = "uniform" if settings.view_weights == "auto" else settings.view_weights
        fuzzifier = 1.0 + 1.0 / LEAST_POWER if settings.fuzzifier is None else settings.fuzzifier
        settings = replace(settings, view_weights=weights, fuzzifier=fuzzifier)
        directions = Directions(settings, self.seed, cuts_rows=terms.noise is not None)
        return [terms.seal(directions), terms.seal(Cells(settings, self.seed, self.workers))]


@dataclass(frozen=True)
class ChooseStart(AskCandidates):
    """Candidates of all sites, and the best of many starts on them."""

    def start(self, board: Board, found: list[Candidates], frames: list[FloatArray]) -> Board:  # noqa: ARG002
        rows = candidate_rows(found, board.get(References).references, board.get(Schema).names)
        settings = self.settings
        starts = candidate_starts(settings.n_init, rows.n_rows, sum(rows.widths), settings.n_clusters)
        start = settings.start(rows, np.random.RandomState(self.seed), self.workers, n_init=starts)
        return self.protocol.resolve(board, self.settings).begin(board, start, rows)


@dataclass(frozen=True)
class ChooseFrame(AskCandidates):
    """Candidates of all sites with their own means and spreads, and the calibration and start that they choose."""

    shares: tuple[float, float] | None = None  # of a site's own mean and spread that are taken out; None chooses

    wants_frame: ClassVar[bool] = True

    def sealed(self, terms: SealedTerms) -> list[Phase[Any, Any]]:
        if self.shares is not None:
            raise ValueError(
                f"calibration={self.shares} with {terms.reason}: a site's own mean and spread let one row change all "
                "that the site sends. Leave calibration='auto' (which is none here) or None."
            )
        return super().sealed(terms)

    def start(self, board: Board, found: list[Candidates], frames: list[FloatArray]) -> Board:
        references, names = board.get(References).references, board.get(Schema).names
        found = self._trusted_when_calibrated(found, frames)
        settings = replace(self.settings, scaling=scaling_of(board, self.settings))
        search = Search(found, frames, references, names, settings, self.seed, self.workers)
        calibration, start, rows = choose_calibration(search, self.shares)
        with Passes(rows, self.settings.n_clusters, self.workers) as scan:
            constrained = self.settings.form.constrain(start, names, lambda: scan.statistics(start))
        return self.protocol.resolve(board, self.settings).begin(board.put(Frame(calibration)), constrained, rows)

    def _trusted_when_calibrated(self, found: list[Candidates], frames: list[FloatArray]) -> list[Candidates]:
        """Candidates without those that the aggregator leaves out once their site's mean and spread are taken out.

        A site that lies about its mean would move its candidates after they were compared with those of others.
        """
        shares = [self.shares] if self.shares is not None else SHARES
        for share in shares:
            moved = [move_candidates(part, frame, share) for part, frame in zip(found, frames, strict=True)]
            if any(share):
                found = [
                    keep_common(*parts) for parts in zip(found, moved, self.aggregator.candidates(moved), strict=True)
                ]
        return found


def keep_common(candidates: Candidates, moved: Candidates, kept: Candidates) -> Candidates:
    """Candidates that are still there when an aggregator has looked at them at another place, as far as they count."""
    if kept is moved:
        return candidates
    sizes, left = np.zeros(len(moved.sizes)), list(range(len(moved.sizes)))
    for point, size in zip(kept.points, kept.sizes.tolist(), strict=True):
        place = next((i for i in left if np.array_equal(moved.points[i], point, equal_nan=True)), None)
        if place is not None:
            left.remove(place)
            sizes[place] = min(size, candidates.sizes[place])
    counts = sizes > 0
    return Candidates(candidates.points[counts], sizes[counts], candidates.spreads[counts])


@dataclass(frozen=True)
class GivenStart(ServerPhase):
    """Centres that were given: no exchange is needed."""

    name: ClassVar[str] = "given start"

    settings: Settings
    protocol: Protocol

    def begin(self, board: Board) -> Board:
        start = self.settings.given_start(board.get(References).references, board.get(Schema).names)
        return self.protocol.resolve(board, self.settings).begin(board, start, None)

    def sealed(self, terms: SealedTerms) -> list[Phase[Any, Any]]:
        return [replace(self, protocol=self.protocol.as_sums(terms.reason))]
