"""Within: the metric of rows, from how far they spread within clusters, before anchors are made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from fedhk._typing import FloatArray, IntArray
from fedhk.embedding.anchors import complete_candidates
from fedhk.embedding.metric import MOST_COLUMNS, FirstClusters, find_first_clusters, keep_units, label_points
from fedhk.embedding.parts import find_levels
from fedhk.embedding.spectrum import embed_affinities, find_eigenvectors
from fedhk.errors import MessageError
from fedhk.federation.board import Board, Entry
from fedhk.federation.entries import Population, References
from fedhk.federation.phases.anchors import ChooseAnchors, RowMeans, TieRows, read_means
from fedhk.federation.phases.base import Phase, Sum, SumPhase
from fedhk.federation.phases.cluster_means import incomplete_views
from fedhk.federation.phases.row_metric import PRECISION, RowMetric
from fedhk.federation.plausible import MOST_ROWS
from fedhk.federation.site import Site
from fedhk.federation.table import read_arrays, round_arrays
from fedhk.model.rows import Rows

# Eigenvectors of rows that stand in for those of the sites; they are all at the server, so that a product costs little.
TOL, MOST_PRODUCTS = 1e-3, 10


@dataclass(frozen=True, eq=False)
class WithinRequest:
    """Ask how far rows spread within these clusters, and in which directions."""

    clusters: FirstClusters  # its arrays are rounded


@dataclass(frozen=True, eq=False)
class FirstGroups(Entry):
    """The clusters that sites are asked about."""

    request: WithinRequest

    @property
    def clusters(self) -> FirstClusters:
        """The clusters as sites read them."""
        return read_arrays(self.request.clusters)


@dataclass(frozen=True)
class FindMetric(SumPhase[WithinRequest]):
    """Find in which directions rows of the same cluster spread, by one sum over rows, and stretch rows by it.

    The server has means of rows. It ties rows that stand in for those of the sites to anchors, as `TieRows` does, and
    finds the clusters of these. Sites get a few means of groups of each cluster, say which of their rows are near to
    which, and answer with sums and products of features. A view with missing cells, with levels of categories, with
    rows of length 1 or with very many features keeps its units.
    """

    name: ClassVar[str] = "within"
    with_noise: ClassVar[bool] = False  # clusters are put together from parts then

    tie: TieRows

    def begin(self, board: Board) -> Board:
        changed = self._list_changed(board)
        if not board.has(RowMeans) or not any(changed):
            return board
        means = complete_candidates(read_means(board))
        found = find_first_clusters(means, self._label_means(board, means), changed, self.tie.seed)
        return board.put(FirstGroups(WithinRequest(round_arrays(found, PRECISION))))

    def is_done(self, board: Board, exchanges: int) -> bool:
        return exchanges > 0 or not board.has(FirstGroups)

    def request(self, board: Board) -> WithinRequest:
        return board.get(FirstGroups).request

    def size(self, board: Board) -> int:
        return sum(board.get(FirstGroups).clusters.sizes)

    @staticmethod
    def vector(site: Site, request: WithinRequest) -> FloatArray:
        rows, clusters = site.rows(), read_arrays(request.clusters)
        try:
            clusters.check(rows.widths)
        except ValueError as error:
            raise MessageError(str(error)) from error
        return clusters.sum_rows(rows)

    @classmethod
    def answer(cls, site: Site, request: WithinRequest) -> Sum:
        return Sum(cls.vector(site, request).astype(np.float32))  # error far below that of rows that are few

    def check_vector(self, board: Board, values: FloatArray, site: str) -> None:
        count, start = board.get(FirstGroups).clusters.n_clusters, 0
        for size in board.get(FirstGroups).clusters.sizes:
            part, start = values[start : start + size], start + size
            if size and (np.any(part[:count] < 0) or part[:count].sum() > MOST_ROWS):
                raise MessageError("rows of clusters that no site can have", site)

    def take(self, board: Board, total: FloatArray, noise: float) -> Board:
        metric = board.get(FirstGroups).clusters.fit_metric(total)
        if metric:
            metric = keep_units(metric, complete_candidates(read_means(board)))
        board = board.drop(FirstGroups)
        return board.put(RowMetric.of(metric)) if metric else board

    def _list_changed(self, board: Board) -> list[bool]:
        """Tell which views are to have a metric."""
        references, incomplete = board.get(References), incomplete_views(board)
        levels = find_levels(board.get(Population).columns, references.widths)
        return [
            reference.width <= MOST_COLUMNS and not (reference.on_sphere or view in incomplete or own.any())
            for view, (reference, own) in enumerate(zip(references.references, levels, strict=True))
        ]

    def _label_means(self, board: Board, means: Rows) -> IntArray:
        """Find the clusters of means of rows, by a diffusion over rows that stand in for those of the sites."""
        tied, count = self.tie.tie_stand_ins(board), self.tie.n_clusters
        found = find_eigenvectors(tied.affinities, count + 1, tied.groups, tol=TOL, most_products=MOST_PRODUCTS)
        projection = found.cluster_projection(count)
        rows = embed_affinities(tied.affinities, projection)
        return label_points(embed_affinities(tied.graph.affinities(means), projection), rows, count, self.tie.seed)


@dataclass(frozen=True, kw_only=True)
class ChooseAnchorsAgain(ChooseAnchors):
    """Collect candidates once more, of rows that were stretched; under masks the first ones stay."""

    def is_done(self, board: Board, exchanges: int) -> bool:
        return exchanges > 0 or not board.has(RowMetric)

    def sealed(self, terms: Any) -> list[Phase[Any, Any]]:
        return []
