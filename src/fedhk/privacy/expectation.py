"""Estimates before a run with noise how much of the clusters it can find."""

from __future__ import annotations

import math
from dataclasses import dataclass

from fedhk.privacy.histograms import believed_above
from fedhk.privacy.mechanism import DifferentialPrivacy
from fedhk.privacy.sensitivity import sum_sensitivity
from fedhk.starts.cells import MOST_FEATURES, POINTS_PER_CLUSTER

__all__ = ["NoisySetting", "expect_share"]

# The geometric mean of the noise in the directions and in the counts of a start at which 1/e of what is there is found,
# and how fast the share falls with more. Fitted to 95 generated federations by `benchmarks/expectation.py`, which also
# says how right it is on others. Of some twenty forms, this one was right most often on federations held out in turn.
NOISE_SCALE, STEEPNESS = 1.23, 1.58

# Noise in the rows of a cluster, in a round, over these rows, above which it hides clusters. On 50 generated mixtures
# (2 to 7 clusters, 2 to 8 features, 100 to 800 rows, two runs each), with the cost of the best centres as 0 and of
# one centre as 1: rounds from all over the unit had .61 where this noise was .6 to 1, .96 from 1 to 1.5, 1.52 from 1.5
# to 2.2 and 1.18 from there to 3.2; where a start was looked for instead, 1.19, 1.68, 1.25 and 1.42.
MOST_HIDDEN = 1.5

# Ranges of lengths that are told apart.
RANGES = 58


@dataclass(frozen=True)
class NoisySetting:
    """Sizes of a run with noise that are known before it begins.

    Parameters
    ----------
    privacy : DifferentialPrivacy
        The budget.
    rows : float
        Rows of all sites.
    width : int
        Features of all views.
    n_clusters : int
        Clusters.
    releases : float
        Noises in a total: 1 where the sites share one, else as many as sites.
    weight : float, default=1.0
        What one unit of privacy can change, in rows.
    """

    privacy: DifferentialPrivacy
    rows: float
    width: int
    n_clusters: int
    releases: float
    weight: float = 1.0

    def measure_noise(self) -> tuple[float, float, float]:
        """Noise in the directions of a start, in its counts and in lengths, each over what is to be found there.

        The largest eigenvalue that noise makes of products of p features is sqrt(2 p) times that in one number. Means
        of c clusters that have all of the spread of rows make c - 1 eigenvalues of 1 / (c - 1) each. Counts are of
        rows that are spread evenly over the fewest points that there are. Lengths of rows count where nobody gave
        bounds: above 1, not even rows that have all the same length are told from noise, and nothing has a unit.
        """
        directions, counts, lengths = map(self._noise_per_row, ("directions", "cells", "lengths"))
        directions *= math.sqrt(2 * min(self.width, MOST_FEATURES)) * max(self.n_clusters - 1, 1)
        lengths = 0.0 if self.privacy.public else lengths * believed_above(RANGES)
        return directions, counts * POINTS_PER_CLUSTER * self.n_clusters, lengths

    @property
    def hides_clusters(self) -> bool:
        """Whether noise in the rows of a cluster, in a round, is more than `MOST_HIDDEN` times these rows."""
        share = self.privacy.multiplier("round", finds_start=False) / self.privacy.multiplier("cells")
        return bool(share * self._noise_per_row("cells") * self.n_clusters > MOST_HIDDEN)

    def measure_center_noise(self) -> float:
        """Noise in the place of a centre, in a round, over how far the rows of its cluster are from it.

        A row pulls a centre by about as much as it is away from it, and so does noise in each of the features.
        """
        return self._noise_per_row("round") * math.sqrt(self.width) * self.n_clusters

    def _noise_per_row(self, phase: str) -> float:
        """Noise in a count of rows, over all rows."""
        a_row = sum_sensitivity(self.weight, self.privacy.neighbours, nonnegative=True)
        return self.privacy.multiplier(phase) * a_row * math.sqrt(self.releases) / self.rows


def expect_share(setting: NoisySetting) -> float:
    """Estimate the share of what a run without noise finds that a run with noise finds, between 0 and 1."""
    directions, counts, lengths = setting.measure_noise()
    noise = max(math.sqrt(directions * counts) / NOISE_SCALE, lengths)
    return math.exp(-(noise**STEEPNESS))
