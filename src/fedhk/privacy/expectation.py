"""What a run with noise can be expected to find, before any of its budget is spent."""

from __future__ import annotations

import math
from dataclasses import dataclass

from fedhk.privacy.mechanism import DifferentialPrivacy
from fedhk.privacy.sensitivity import sum_sensitivity
from fedhk.starts.cells import MOST_FEATURES

__all__ = ["NoisySetting", "expect_share"]

# Noise at which half is found, and how fast the share falls with more of it. Fitted to generated federations by
# `benchmarks/expectation.py`, which also says how right it is on others. Noise in the rounds and in the counts of a
# start grows with this one, and told no more about 130 such runs.
HALF_FOUND, STEEPNESS = 1.25, 1.50


@dataclass(frozen=True)
class NoisySetting:
    """What is known of a run with noise before it begins.

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

    @property
    def noise(self) -> float:
        """Noise in the directions of a start, over what is to be found there.

        The largest eigenvalue that noise makes of products of p features is sqrt(2 p) times that in one number. Means
        of c clusters that have all of the spread of rows make c - 1 eigenvalues of 1 / (c - 1) each.
        """
        per_row = self.weight * math.sqrt(self.releases) / self.rows
        in_number = self.privacy.multiplier("directions") * per_row
        in_number *= sum_sensitivity(1.0, self.privacy.neighbours, nonnegative=True)
        return in_number * math.sqrt(2 * min(self.width, MOST_FEATURES)) * max(self.n_clusters - 1, 1)


def expect_share(setting: NoisySetting) -> float:
    """The share of what a run without noise finds that a run with noise can be expected to find, between 0 and 1."""
    return float(1.0 / (1.0 + (setting.noise / HALF_FOUND) ** STEEPNESS))
