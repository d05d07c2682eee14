"""The offset that all clusters of a site share: another sensor, another person.

A site keeps one during the rounds, so that the common centres are learned from rows as if all were of one site; and its
own model may have one at the end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from fedhk._typing import FloatArray, IntArray
from fedhk.model.parameters import Parameters
from fedhk.model.passes import Passes
from fedhk.model.rows import SAMPLE_ROWS, Rows, joint_rows, take
from fedhk.model.statistics import Statistics
from fedhk.personal.component import Component, OwnModel, join_sums
from fedhk.personal.shares import LEAST_ROWS, PRIOR_ROWS, Move, agreement, mean_move

# Passes in which a site finds its first offset; memberships follow it, so that one is not enough.
FIRST_PASSES = 3


def shift_centers(parameters: Parameters, offset: Sequence[FloatArray]) -> Parameters:
    """Give parameters with an offset added to all centres, which have no form then; () is no offset."""
    if not offset:
        return parameters
    centers = tuple(values + moved for values, moved in zip(parameters.centers, offset, strict=True))
    return replace(parameters.free(), centers=centers)


def collect_statistics(
    rows: Rows, parameters: Parameters, offset: Sequence[FloatArray] = (), workers: int = 1
) -> Statistics:
    """Compute the statistics of a site's rows, without the site's offset, at the common parameters."""
    shifted = shift_centers(parameters, offset)
    with Passes(rows, shifted.n_clusters, workers) as scan:
        statistics = scan.statistics(shifted)
    if not offset:
        return statistics
    parts = zip(statistics.numerators, statistics.weights, offset, strict=True)
    return replace(statistics, numerators=tuple(n - w * moved for n, w, moved in parts))


def follow_centers(
    rows: Rows, parameters: Parameters, offset: Sequence[FloatArray] = (), workers: int = 1
) -> tuple[FloatArray, ...]:
    """Find the offset of a site's rows from the common centres, starting from the last one; () is none yet.

    It minimises the site's part of the objective with `PRIOR_ROWS` rows that have no offset: sites of few rows have
    little of it. Levels of a category have none.
    """
    numbers = np.split(rows.numbers, np.cumsum(rows.widths)[:-1])
    passes = 1 if offset else FIRST_PASSES
    found = tuple(offset) or tuple(np.zeros(values.shape[1]) for values in parameters.centers)
    for _ in range(passes):
        statistics = collect_statistics(rows, parameters, found, workers)
        parts = zip(statistics.numerators, statistics.weights, parameters.centers, found, numbers, strict=True)
        found = tuple(
            np.where(has, ((n - w * a).sum(axis=0) + w.sum(axis=0) * old) / (w.sum(axis=0) + PRIOR_ROWS), 0.0)
            for n, w, a, old, has in parts
        )
    return found


def measure_offset_share(rows: Rows, common: Parameters, labels: IntArray) -> float:
    """Measure how much a site differs: the share of its offset from the common centres that held-out rows confirm.

    Rows are in the units of the common centres, without calibration; labels are those of the site's own model.
    """
    if rows.n_rows < LEAST_ROWS:
        return 0.0
    order = np.random.default_rng(0).permutation(rows.n_rows)[:SAMPLE_ROWS]
    away = joint_rows(take(rows, order), missing=np.nan) - np.hstack(common.centers)[labels[order]]
    away = away[:, rows.numbers]
    return agreement(mean_move(away[::2]), mean_move(away[1::2]))


@dataclass(frozen=True, kw_only=True)
class Shift(Component[Statistics]):
    """The offset of a site's own model: of its numbers, as levels of a category have none."""

    name: ClassVar[str] = "shift"

    def learn(self, own: OwnModel, part: Statistics) -> Move:
        """Find where the rows of all clusters together pull the centres, per feature."""
        numerators, weights = join_sums(part, own.common)
        total = np.where(own.rows.numbers, weights.sum(axis=0), 0.0)
        pulls = (numerators - weights * np.hstack(own.common.centers)).sum(axis=0)
        return Move(np.divide(pulls, total, out=np.zeros_like(pulls), where=total > 0), total)

    def apply(self, own: OwnModel, part: Statistics, shares: Mapping[str, float]) -> OwnModel:
        return replace(own, offset=shares[self.name] * self.learn(own, part).step)
