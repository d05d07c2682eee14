"""An embedding of rows by heat diffusion: its options, the map that embeds rows, and models of embedded rows.

Rows from which heat reaches the same anchors lie in the same direction. Clusters need not be round: what counts is
whether heat can go from one row to another over rows in between.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from numbers import Integral, Real
from typing import Any

import numpy as np
import scipy.sparse as sp

from fedhk._options import Option
from fedhk._typing import FloatArray
from fedhk.data.scaling import Reference
from fedhk.data.views import Views
from fedhk.embedding.affinity import AnchorGraph
from fedhk.embedding.anchors import anchor_count, complete_candidates, draw_stand_ins, make_anchors
from fedhk.embedding.spectrum import (
    EXTRA_DIRECTIONS,
    Eigenvectors,
    approximate_eigenvectors,
    first_directions,
    gram,
    products,
    solve_gram,
)
from fedhk.model.fitted import FittedModel
from fedhk.model.parameters import Parameters
from fedhk.model.rows import Rows
from fedhk.starts.seeding import sample_rows

# The name of the one view of embedded rows, and of the one view of affinities.
EMBEDDED, AFFINITIES = "diffusion", "affinities"

# At one site alone, up to so many columns the whole Gram matrix is solved: 8 MB.
GRAM_COLUMNS = 1000

# Beyond, an exchange costs one pass over sparse rows, so that vectors are found to many digits.
ALONE_TOL, ALONE_EXCHANGES = 1e-6, 20


@dataclass(frozen=True)
class Diffusion(Option):
    """How rows are tied to anchors, over which heat then spreads.

    Parameters
    ----------
    n_anchors : int, default=300
        Anchors; four for a cluster where that is more, at most one for three rows, at least two for a cluster.
    neighbours : int, default=9
        Anchors that a row is tied to in each view, and in all views together.
    scale : float, default=3.0
        How fast ties weaken with the distance.
    joint_weight : float, default=0.5
        Share of the distances over all views together; the views divide the rest evenly.

    Notes
    -----
    The defaults are by measurement, see `benchmarks/results/diffusion-tried.md`.

    Examples
    --------
    >>> from fedhk import Diffusion
    >>> Diffusion(neighbours=5)
    Diffusion(n_anchors=300, neighbours=5, scale=3.0, joint_weight=0.5)
    """

    n_anchors: int = 300
    neighbours: int = 9
    scale: float = 3.0
    joint_weight: float = 0.5

    def __post_init__(self) -> None:
        for name, least in (("n_anchors", 2), ("neighbours", 1)):
            value = getattr(self, name)
            if not isinstance(value, Integral) or isinstance(value, bool) or value < least:
                raise ValueError(f"{name}={value!r} must be a whole number from {least} on.")
            object.__setattr__(self, name, int(value))
        if not _is_number(self.scale) or not 0 < self.scale < float("inf"):
            raise ValueError(f"scale={self.scale!r} must be a finite number above 0.")
        if not _is_number(self.joint_weight) or not 0 <= self.joint_weight <= 1:
            raise ValueError(f"joint_weight={self.joint_weight!r} must be a number from 0 to 1.")
        for name in ("scale", "joint_weight"):
            object.__setattr__(self, name, float(getattr(self, name)))


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


@dataclass(frozen=True)
class DiffusionMap:
    """All that is needed to embed a row: nothing of other rows."""

    graph: AnchorGraph
    projection: FloatArray  # what affinities are multiplied by, of shape (m, k)
    values: FloatArray  # at least k eigenvalues: near 1 where clusters are nearly apart

    @property
    def n_components(self) -> int:
        """Dimensions of the embedding."""
        return int(self.projection.shape[1])

    def embed(self, rows: Rows) -> FloatArray:
        """Rows in the directions that heat distinguishes, of length 1, shape (n, k); a row without any value is 0."""
        result = np.empty((rows.n_rows, self.n_components))
        for part, affinities in self.graph.chunks(rows):
            result[part] = embed_affinities(affinities, self.projection)
        return result


def embed_affinities(affinities: Any, projection: FloatArray) -> FloatArray:
    """Rows of length 1 from their affinities, shape (n, k)."""
    values = np.asarray(affinities @ projection)
    lengths = np.linalg.norm(values, axis=1, keepdims=True)
    return np.asarray(np.divide(values, lengths, out=np.zeros(values.shape), where=lengths > 0))


def make_embedded_rows(embedding: FloatArray, sample_weight: FloatArray | None = None) -> Rows:
    """An embedding as rows of one view; a row of zeros had no value, and has none here."""
    nothing = np.asarray(~embedding.any(axis=1))
    table = np.where(nothing[:, None], np.nan, embedding)
    return _one_view(EMBEDDED, table, sample_weight, missing=bool(nothing.any()))


def make_affinity_rows(affinities: Any, sample_weight: FloatArray | None = None) -> Rows:
    """Affinities, CSR of shape (n, m), as rows of one sparse view."""
    return _one_view(AFFINITIES, affinities, sample_weight, missing=False)


def _one_view(name: str, table: Any, sample_weight: FloatArray | None, *, missing: bool) -> Rows:
    """A table as rows that are in model units already: embedded rows have length 1, so that no moments are needed."""
    views = Views((table,), (name,), table.shape[0], np.dtype(np.float64), (missing,), (None,))
    zero, one = np.zeros(table.shape[1]), np.ones(table.shape[1])
    return Rows(views, (Reference(False, zero, one, "uniform", zero, one, 1.0),), sample_weight)


def make_graph(
    candidates: Rows, references: tuple[Reference, ...], n_anchors: int, options: Diffusion, seed: int
) -> AnchorGraph:
    """The graph of anchors made from complete candidates, or from rows."""
    anchors = make_anchors(candidates, n_anchors, references, np.random.RandomState(seed))
    return AnchorGraph(anchors, int(options.neighbours), float(options.scale), float(options.joint_weight))


def tie_stand_ins(graph: AnchorGraph, candidates: Rows, seed: int) -> Any:
    """Affinities of rows that stand in for those of the sites, CSR."""
    parts = draw_stand_ins(candidates, np.random.RandomState(seed))
    return sp.vstack([graph.affinities(part) for part in parts], format="csr")


def fit_diffusion(rows: Rows, n_components: int, options: Diffusion, seed: int) -> tuple[DiffusionMap, Any]:
    """The diffusion of the rows of one site alone, and their affinities."""
    sample = complete_candidates(sample_rows(rows, n_components, np.random.RandomState(seed)))
    weight = rows.sample_weight
    total = float(rows.n_rows if weight is None else weight.sum())
    count = anchor_count(n_components, total, options.n_anchors)
    graph = make_graph(sample, rows.references, count, options, seed)
    affinities = graph.affinities(rows)
    found = _find_eigenvectors(affinities, n_components, weight)
    return DiffusionMap(graph, found.projection(n_components), found.values[:n_components]), affinities


def _find_eigenvectors(affinities: Any, n_components: int, weight: FloatArray | None) -> Eigenvectors:
    """Eigenvectors at one site, where an exchange costs nothing: from the whole Gram matrix, or to many digits."""
    if affinities.shape[1] <= GRAM_COLUMNS:
        return solve_gram(gram(affinities, weight), n_components)
    known: list[tuple[FloatArray, FloatArray]] = []
    weighted = affinities if weight is None else sp.csr_array(sp.diags_array(np.sqrt(weight)) @ affinities)
    directions = first_directions(weighted, n_components + EXTRA_DIRECTIONS)
    while True:
        known.append((directions, products(affinities, directions, weight)))
        found = approximate_eigenvectors(known, n_components)
        directions = found.next_directions(n_components, ALONE_TOL)
        if not directions.shape[1] or len(known) >= ALONE_EXCHANGES:
            return found


@dataclass(frozen=True, kw_only=True)
class EmbeddedModel(FittedModel):
    """A model of embedded rows: its centres are in the embedding, all else is of the views that came in."""

    diffusion: DiffusionMap
    means: tuple[FloatArray, ...]  # of the rows of each cluster, of shape (c, d_h) per view, in model units
    sizes: FloatArray  # rows of each cluster, by membership

    @property
    def view_weights(self) -> FloatArray:
        """Views have equal shares in the embedding."""
        return np.full(len(self.references), 1.0 / len(self.references))

    def rows(self, views: Views, sample_weight: FloatArray | None = None) -> Rows:
        """New rows, embedded."""
        return make_embedded_rows(self.diffusion.embed(super().rows(views, sample_weight)), sample_weight)

    def centers(self) -> list[FloatArray]:
        """Means of the rows of each cluster, in the units and the shape of the input."""
        return self._of_means.centers()

    def seen(self, own: FittedModel, views: Views) -> tuple[Rows, Parameters]:
        """As `FittedModel.seen`; centres of a model that is not of this embedding are embedded as rows are."""
        if isinstance(own, EmbeddedModel) and np.array_equal(own.diffusion.projection, self.diffusion.projection):
            return own.rows(views), own.parameters
        inner = self._of_means.seen(own, views)[1].centers
        tables = tuple(np.ascontiguousarray(r.to_input(c)) for r, c in zip(self.references, inner, strict=True))
        points = Views(
            tables, self.view_names, len(inner[0]), np.dtype(np.float64), (False,) * len(inner), self.columns
        )
        return self.rows(views), replace(self.parameters, centers=(self.diffusion.embed(super().rows(points)),))

    @property
    def _of_means(self) -> FittedModel:
        """Clusters as the views that came in show them."""
        shares = np.ones(len(self.references))
        parameters = replace(self.parameters, centers=self.means, view_weights=self.view_weights, view_shares=shares)
        return FittedModel(parameters, self.references, self.view_names, self.columns)
