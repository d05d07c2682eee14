"""Estimates before a run with noise how much of the clusters it can find."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from fedhk.privacy.histograms import believed_above
from fedhk.privacy.mechanism import DifferentialPrivacy
from fedhk.privacy.sensitivity import sum_sensitivity
from fedhk.starts.cells import POINTS_PER_CLUSTER

__all__ = ["NoisySetting"]

# Noise in counts of a start, over the rows that each has, above which it is not looked for. On 84 generated mixtures (2
# to 30 features and clusters) both ways came as near to the best centres around .75; with more noise, rounds from all
# over the unit came nearer. Fewer rounds than six did not.
MOST_NOISE = 0.75


@dataclass(frozen=True)
class Fall:
    """How the share that is found falls with noise: 1 / (1 + (noise / half) ** steepness).

    The noise is that in a count of rows, over all rows, times powers of the clusters but one and of the features of a
    view (their geometric mean). Fitted to 1,641 generated federations by `benchmarks/expectation.py`, which also says
    how right it is on others. Of some sixty forms, none was right more often on federations that were held out in turn.
    """

    half: float
    steepness: float
    clusters: float
    features: float

    def scale_noise(self, noise: float, n_clusters: int, features: float) -> float:
        """Scale noise in a count of rows: at 1, half of what is there is found."""
        return noise * math.pow(max(n_clusters - 1, 1), self.clusters) * math.pow(features, self.features) / self.half


# Where a start is looked for, and where rounds begin all over the unit.
STARTED, SCATTERED = Fall(0.79, 1.73, 1.33, 0.38), Fall(2.6, 0.98, 1.0, 1.25)

# Standard deviation of what single runs find around the expected share, over that of a coin with this share. Of the
# 4,923 runs of these federations.
LUCK = 0.5

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
    widths : tuple of int
        Features of each view.
    n_clusters : int
        Clusters.
    releases : float
        Noises in a total: 1 where the sites share one, else as many as sites.
    weight : float, default=1.0
        What one unit of privacy can change, in rows.
    """

    privacy: DifferentialPrivacy
    rows: float
    widths: tuple[int, ...]
    n_clusters: int
    releases: float
    weight: float = 1.0

    @property
    def width(self) -> int:
        """Features of all views."""
        return sum(self.widths)

    @property
    def rows_budget(self) -> DifferentialPrivacy:
        """The budget with the shares for rows, to which the constants here were fitted."""
        return replace(self.privacy, unit="row")

    def measure_count_noise(self) -> float:
        """Noise in the counts of a start, over the rows that there are if these lie evenly over the fewest points."""
        return self.measure_row_noise("cells") * POINTS_PER_CLUSTER * self.n_clusters

    def measure_length_noise(self) -> float:
        """Noise in lengths of rows, over all rows, where nobody gave bounds.

        Above 1, not even rows that have all the same length are told from noise, and nothing has a unit.
        """
        return 0.0 if self.privacy.public else self.measure_row_noise("lengths") * believed_above(RANGES)

    @property
    def hides_clusters(self) -> bool:
        """Whether noise in the rows of a cluster, in a round, is more than `MOST_HIDDEN` times these rows."""
        share = self.rows_budget.multiplier("round", finds_start=False) / self.rows_budget.multiplier("cells")
        return bool(share * self.measure_row_noise("cells") * self.n_clusters > MOST_HIDDEN)

    @property
    def is_scattered(self) -> bool:
        """Whether noise would hide a start, so that rounds begin all over the unit and have its budget."""
        return self.measure_count_noise() > MOST_NOISE and not self.hides_clusters

    def measure_center_noise(self) -> float:
        """Noise in the place of a centre, in a round, over how far the rows of its cluster are from it.

        A row pulls a centre by about as much as it is away from it, and so does noise in each of the features.
        """
        return self.measure_row_noise("round") * math.sqrt(self.width) * self.n_clusters

    def expect_share(self) -> tuple[float, float]:
        """Estimate the share of what a run without noise finds that a run with noise finds, between 0 and 1.

        Returns its mean over runs, and the standard deviation of single runs around it.
        """
        fall = SCATTERED if self.is_scattered else STARTED
        features = math.exp(sum(map(math.log, self.widths)) / len(self.widths))
        noise = fall.scale_noise(self.measure_row_noise("cells"), self.n_clusters, features)
        share = 1.0 / (1.0 + max(noise, self.measure_length_noise()) ** fall.steepness)
        return share, LUCK * math.sqrt(share * (1.0 - share))

    def measure_row_noise(self, phase: str) -> float:
        """Noise in a count of rows, over all rows."""
        a_row = sum_sensitivity(self.weight, self.privacy.neighbours, nonnegative=True)
        return self.rows_budget.multiplier(phase) * a_row * math.sqrt(self.releases) / self.rows
