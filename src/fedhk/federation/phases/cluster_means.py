"""Cluster means: the final objective, and the means of the clusters of embedded rows in the original views."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedhk._typing import FloatArray
from fedhk.embedding.cluster_sums import ClusterSums, sum_clusters, sums_size
from fedhk.errors import MessageError
from fedhk.federation.board import Board, Entry, RowEntry, Shared
from fedhk.federation.entries import FinalParameters, Population, References
from fedhk.federation.phases.base import SumPhase
from fedhk.federation.phases.finish import Finish, FinishRequest, final_parameters
from fedhk.federation.phases.frame import Frame
from fedhk.federation.plausible import ROUNDING, limits_from_moments
from fedhk.federation.site import Site
from fedhk.model.passes import Passes

# The objective and the number of rows, without the summary for own models, which embedded rows do not need.
OBJECTIVE = Finish(summary=False, memory=False)
OBJECTIVE_SIZE = 2


@dataclass(frozen=True, eq=False)
class ClusterMeans(Shared):
    """Means of the clusters in the original views."""

    means: tuple[
        FloatArray, ...
    ]  # of the rows of each cluster, by membership, in the common units before any calibration
    sizes: FloatArray  # rows of each cluster, by membership

    def in_units(self, board: Board) -> tuple[FloatArray, ...]:
        """Return the means in units of the calibrated rows, if sites are calibrated."""
        means = self.means
        for frame in board.find(Frame):
            means = tuple(part / factor for part, factor in zip(means, frame.calibration.factors, strict=True))
        return means


@dataclass(frozen=True, eq=False)
class Limits(Entry):
    """Squared distances to anchors within which the rows of each cluster of the fit are, but for few; (c,)."""

    squares: FloatArray


@dataclass(frozen=True)
class FinishEmbeddedRequest:
    """Ask for the objective and the sums of rows by cluster; `incomplete` numbers the views that lack cells."""

    incomplete: tuple[int, ...]


@dataclass(frozen=True)
class FinishEmbedded(SumPhase[FinishEmbeddedRequest]):
    """Compute the final objective and, in the same exchange, sums of rows by membership."""

    name: ClassVar[str] = "finish embedded"
    with_noise: ClassVar[bool] = False  # what clusters look like follows from their parts

    def request(self, board: Board) -> FinishEmbeddedRequest:
        return FinishEmbeddedRequest(incomplete_views(board))

    def size(self, board: Board) -> int:
        widths = board.get(References).widths
        return OBJECTIVE_SIZE + sums_size(_n_clusters(board), widths, incomplete_views(board))

    @staticmethod
    def vector(site: Site, request: FinishEmbeddedRequest) -> FloatArray:
        parameters = final_parameters(site)
        with Passes(site.rows(), parameters.n_clusters, site.workers) as scan:
            memberships = scan.assign(parameters)[0]
        # in the common model units, before rows are calibrated or embedded
        rows = site.rows(upto=type(next(site.board.find(RowEntry))))
        found = sum_clusters(rows, memberships, request.incomplete)
        return np.concatenate([Finish.vector(site, FinishRequest(summary=False)), found.to_array()])

    def check_vector(self, board: Board, values: FloatArray, site: str) -> None:
        objective, sums = np.split(values, [OBJECTIVE_SIZE])
        OBJECTIVE.check_vector(board, objective, site)
        references, incomplete = board.get(References), incomplete_views(board)
        found = ClusterSums.from_array(sums, _n_clusters(board), references.widths)
        reach = limits_from_moments(references.references, board.get(Population).moments)
        check_cluster_sums(found, float(objective[1]), reach, incomplete, site)

    def take(self, board: Board, total: FloatArray, noise: float) -> Board:
        objective, sums = np.split(total, [OBJECTIVE_SIZE])
        widths = board.get(References).widths
        found = ClusterSums.from_array(sums, _n_clusters(board), widths)
        means = ClusterMeans(found.means(widths, incomplete_views(board)), found.sizes)
        return OBJECTIVE.take(board, objective, noise).put(means)


def incomplete_views(board: Board) -> tuple[int, ...]:
    """Return the views in which some site has missing cells, so that observed cells are counted per feature."""
    moments = board.get(Population).moments
    return tuple(view for view, found in enumerate(moments) if np.any(found.weight != found.rows))


def check_cluster_sums(
    found: ClusterSums, rows: float, reach: tuple[FloatArray, ...], incomplete: tuple[int, ...], site: str
) -> None:
    """Refuse sums of rows by membership that so many rows cannot have."""
    most = (1 + ROUNDING) * rows
    if np.any(found.sizes < 0) or found.sizes.sum() > most or np.any(found.seen < 0) or np.any(found.seen > most):
        raise MessageError(f"clusters with more rows than the {rows:.6g} of the site, or with fewer than none", site)
    seen = found.seen_by_view([len(limits) for limits in reach], incomplete)
    limits = np.hstack([part * limit for part, limit in zip(seen, reach, strict=True)])
    if np.any(np.abs(found.sums) > limits):
        raise MessageError("means of clusters far outside the range of the sites", site)


def _n_clusters(board: Board) -> int:
    return board.get(FinalParameters).parameters.n_clusters
