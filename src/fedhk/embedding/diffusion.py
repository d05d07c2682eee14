"""An embedding of rows by heat diffusion, found at one site, and models of embedded rows.

Rows from which heat reaches the same anchors lie in the same direction. Clusters need not be round: what counts is
whether heat can go from one row to another over rows in between.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from fedhk._typing import FloatArray
from fedhk.data.scaling import Reference
from fedhk.data.views import Views
from fedhk.embedding.affinity import AnchorGraph
from fedhk.embedding.anchors import anchor_count, complete_candidates, good_count, make_anchors
from fedhk.embedding.carried import Origin
from fedhk.embedding.map import DiffusionMap
from fedhk.embedding.mixture import fit_mixture
from fedhk.embedding.options import SYNTHETIC, Diffusion
from fedhk.embedding.parts import clear_levels, find_levels, make_parts
from fedhk.embedding.spectrum import find_eigenvectors, find_groups, tie_to_parts
from fedhk.model.fitted import FittedModel
from fedhk.model.parameters import Parameters
from fedhk.model.rows import Rows
from fedhk.starts.seeding import sample_rows

# The name of the one view of embedded rows, and of the one view of affinities.
EMBEDDED, AFFINITIES = "diffusion", "affinities"

# At one site a product costs one pass over sparse rows, so that vectors are found to many digits.
TOL, MOST_PRODUCTS = 1e-6, 20


def make_embedded_rows(embedding: FloatArray, sample_weight: FloatArray | None = None) -> Rows:
    """Make rows of one view from an embedding; a row of zeros becomes a row without any value."""
    nothing = np.asarray(~embedding.any(axis=1))
    table = np.where(nothing[:, None], np.nan, embedding)
    return _one_view(EMBEDDED, table, sample_weight, missing=bool(nothing.any()))


def make_affinity_rows(affinities: Any, sample_weight: FloatArray | None = None) -> Rows:
    """Make rows of one sparse view from affinities, CSR of shape (n, m)."""
    return _one_view(AFFINITIES, affinities, sample_weight, missing=False)


def _one_view(name: str, table: Any, sample_weight: FloatArray | None, *, missing: bool) -> Rows:
    """Make rows from a table in model units; embedded rows have length 1, so no moments are needed."""
    views = Views((table,), (name,), table.shape[0], np.dtype(np.float64), (missing,), (None,))
    zero, one = np.zeros(table.shape[1]), np.ones(table.shape[1])
    return Rows(views, (Reference(False, zero, one, "uniform", zero, one, 1.0),), sample_weight)


def fit_diffusion(rows: Rows, n_components: int, options: Diffusion, seed: int) -> tuple[DiffusionMap, Any]:
    """Compute the diffusion of the rows of one site alone, and their affinities."""
    weight = rows.sample_weight
    total = float(rows.n_rows if weight is None else weight.sum())
    sample = complete_candidates(sample_rows(rows, n_components, np.random.RandomState(seed)))
    columns = rows.views.columns
    levels, parts = find_levels(columns, rows.widths), make_parts(sample, columns, rows.references, n_components, seed)
    if options.anchors == SYNTHETIC:
        drawn = fit_mixture(rows, n_components, seed).take(good_count(n_components, total, options.n_anchors), seed)
        points = clear_levels(drawn, levels)
    else:
        count = anchor_count(n_components, total, options.n_anchors)
        points = make_anchors(sample, count, rows.references, np.random.RandomState(seed), levels)
    graph = AnchorGraph(points, options.neighbours, options.scale, options.joint_weight)
    graph = tie_to_parts(graph, rows, parts, n_components, weight)
    affinities = graph.affinities(rows)
    groups = find_groups(affinities, graph, n_components, options, seed, sample_weight=weight)
    found = find_eigenvectors(affinities, n_components, groups, weight, tol=TOL, most_products=MOST_PRODUCTS)
    return DiffusionMap(graph, found.projection(n_components), found.values[:n_components]), affinities


@dataclass(frozen=True, kw_only=True)
class EmbeddedModel(FittedModel):
    """A model of embedded rows: its centres are in the embedding, all else refers to the original views."""

    diffusion: DiffusionMap  # as it was found
    means: tuple[FloatArray, ...]  # of the rows of each cluster, of shape (c, d_h) per view, in model units
    sizes: FloatArray  # rows of each cluster, by membership
    # What updates need; files of older versions have none of it.
    starts: FloatArray = field(default_factory=lambda: np.zeros((0, 0)))  # means when the embedding was found, (c, d)
    parents: tuple[int, ...] = ()  # of each cluster that came later: the one whose anchors it has copies of
    # Squared distances to the nearest anchor within which the rows of each cluster of the fit were, but for few.
    limits: FloatArray = field(default_factory=lambda: np.zeros(0))

    @cached_property
    def carried(self) -> DiffusionMap:
        """The embedding with anchors where the clusters are now."""
        if not len(self.starts):
            return self.diffusion
        return self.origin.carry(np.hstack(self.means), self.parents, self.parameters.gone)[0]

    @property
    def origin(self) -> Origin:
        """The embedding as it was found, and the clusters in it."""
        known, width = len(self.starts), self.diffusion.n_components
        return Origin(self.diffusion, self.parameters.centers[0][:known, :width], self.starts)

    @property
    def view_weights(self) -> FloatArray:
        """Views have equal shares in the embedding."""
        return np.full(len(self.references), 1.0 / len(self.references))

    def rows(self, views: Views, sample_weight: FloatArray | None = None) -> Rows:
        """Embed new rows."""
        return make_embedded_rows(self.carried.embed(super().rows(views, sample_weight)), sample_weight)

    def _table_centers(self) -> list[FloatArray]:
        """Return the means of the rows of each cluster."""
        return self.in_views._table_centers()

    def seen(self, own: FittedModel, views: Views) -> tuple[Rows, Parameters]:
        """As `FittedModel.seen`; centres of a model that is not of this embedding are embedded as rows are."""
        if isinstance(own, EmbeddedModel) and np.array_equal(own.carried.projection, self.carried.projection):
            return own.rows(views), own.parameters
        inner = self.in_views.seen(own, views)[1].centers
        tables = tuple(np.ascontiguousarray(r.to_input(c)) for r, c in zip(self.references, inner, strict=True))
        points = Views(
            tables, self.view_names, len(inner[0]), np.dtype(np.float64), (False,) * len(inner), self.columns
        )
        return self.rows(views), replace(self.parameters, centers=(self.carried.embed(self._table_rows(points)),))

    @property
    def in_views(self) -> FittedModel:
        parameters = of_means(self.parameters, self.means)
        return FittedModel(parameters, self.references, self.view_names, self.columns, self.folded)


def of_means(parameters: Parameters, means: tuple[FloatArray, ...]) -> Parameters:
    """Return the parameters of embedded clusters with their means in the views that came in, all of equal weight."""
    count = len(means)
    return replace(parameters, centers=means, view_weights=np.full(count, 1.0 / count), view_shares=np.ones(count))
