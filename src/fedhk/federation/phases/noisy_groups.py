"""The first noisy rounds have more centres than clusters; the start is chosen again among the means that they find.

Counts of rows at points along a few directions are a coarse picture of the rows: two clusters that lie behind each
other there, or between the same points, are taken for one, and no later round parts them. What one row can change in a
round does not depend on how many centres there are. So where noise leaves room for it, the first rounds are at several
centres for each cluster. Their means, in all features, are candidates as sites send them in the open.

A site is asked for noisy rounds as later: nothing else is read from its rows, and the same bound holds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from fedhk._typing import FloatArray
from fedhk.federation.board import Board
from fedhk.federation.entries import Minimisation, References
from fedhk.federation.phases.sum_rounds import NoisyRounds
from fedhk.federation.phases.sum_start import Leading, StartFromSums, SumCandidates
from fedhk.federation.sealed import SealedTerms
from fedhk.federation.sealed.noise import StartKnown
from fedhk.model.descent import improve
from fedhk.model.parameters import CenterForm
from fedhk.model.rows import view_sums
from fedhk.starts.candidates import Candidates
from fedhk.starts.cells import hold_counts
from fedhk.starts.settings import Settings

# Rounds with more centres. On 24 generated federations whose sites differ (3 to 6 clusters, 6 draws each) mean ARI was
# .896, .902 and .904 with 1, 2 and 3 of them, and .879 without.
GROUP_ROUNDS = 2

# Noise in the place of a centre over how far rows are from it, up to which centres are added, and the most of them per
# cluster. On the same federations half of this noise had .890, twice .890, and 4, 8 and 16 centres .895, .902, .899.
MOST_NOISE, GROUPS_PER_CLUSTER = 0.18, 8


@dataclass(frozen=True)
class NoisyGroups(NoisyRounds):
    """Find the means of several groups of rows for each cluster, as candidates for a start; where noise allows it."""

    settings: Settings
    seed: int
    workers: int
    terms: SealedTerms

    def begin(self, board: Board) -> Board:
        """Return the board with the first centres; as it is where there are to be no more than clusters."""
        count = self._count_groups(board)
        if count <= self.settings.n_clusters:
            return board
        settings = replace(self.settings, form=CenterForm())
        # points show how crisp clusters are; means of groups, which lie within clusters, do not
        start = StartFromSums(settings, self.seed, self.workers).begin(board).get(Minimisation).parameters
        settings = replace(settings, n_clusters=count, n_init=1, fuzzifier=start.fuzzifier)
        return StartFromSums(settings, self.seed, self.workers).begin(board)

    def resume(self, board: Board) -> Board:
        return board

    def _count_groups(self, board: Board) -> int:
        """Count the centres that noise leaves room for; none where rounds are few or points show all features."""
        if board.has(StartKnown) or self.rounds < 2 * GROUP_ROUNDS:
            return 0
        n_features, n_directions = board.get(Leading).landmarks.axes.shape
        if n_directions == n_features:
            return 0
        c, points = self.settings.n_clusters, len(board.get(SumCandidates).candidates.sizes)
        per_cluster = MOST_NOISE / self.terms.measure(board, c).measure_center_noise()
        return min(int(c * min(per_cluster, GROUPS_PER_CLUSTER)), points - 1)

    def is_done(self, board: Board, exchanges: int) -> bool:
        done = [entry.progress.iteration for entry in board.find(Minimisation)]
        return not done or done[0] >= GROUP_ROUNDS or not self.noise.affords(self, board)

    def take(self, board: Board, total: FloatArray, noise: float) -> Board:
        progress = board.get(Minimisation).progress
        statistics = self._read(board, progress.parameters, total, noise)
        better = improve(progress.parameters, statistics, learn_weights=False)
        # what noise hides may have as many rows as noise: a small cluster is not lost for it
        weights = self._split(board, total, board.get(References).widths)[1].mean(axis=1)
        sizes = np.maximum(hold_counts(weights), noise / self.request(board).count_scale)
        progress = self._advance(progress, better, statistics)
        board = board.put(Minimisation(progress))
        if progress.iteration < GROUP_ROUNDS:
            return board
        return board.put(SumCandidates(find_candidates(board, np.hstack(better.centers), sizes)))


def find_candidates(board: Board, means: FloatArray, sizes: FloatArray) -> Candidates:
    """Give means of groups as candidates: rows spread around them by what they leave of the mean square of all rows."""
    points, widths = board.get(SumCandidates).candidates, board.get(References).widths
    squares = np.average(view_sums(points.points**2, widths) + points.spreads, axis=0, weights=points.sizes)
    left = squares - np.average(view_sums(means**2, widths), axis=0, weights=sizes)
    return Candidates(means, sizes, np.tile(np.maximum(left, 0.0), (len(means), 1)))
