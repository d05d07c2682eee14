"""An embedding of rows by heat diffusion: rows from which heat reaches the same anchors lie in the same direction.

Clusters need not be round: what counts is whether heat can go from one row to another over rows in between.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from fedhk._typing import FloatArray
from fedhk.data.scaling import Reference
from fedhk.data.views import Views
from fedhk.embedding.affinity import AnchorGraph
from fedhk.embedding.anchors import anchor_count, complete_candidates, draw_stand_ins, make_anchors
from fedhk.embedding.diffusion import Diffusion
from fedhk.embedding.spectrum import (
    EXTRA_DIRECTIONS,
    Eigenvectors,
    approximate_eigenvectors,
    first_directions,
    gram,
    products,
    solve_gram,
)
from fedhk.model.rows import Rows
from fedhk.starts.seeding import sample_rows

# The name of the one view of embedded rows, and of the one view of affinities.
EMBEDDED, AFFINITIES = "diffusion", "affinities"

# At one site alone, up to so many columns the whole Gram matrix is solved: 8 MB.
GRAM_COLUMNS = 1000

# Beyond, an exchange costs one pass over sparse rows, so that vectors are found to many digits.
ALONE_TOL, ALONE_EXCHANGES = 1e-6, 20


@dataclass(frozen=True)
class DiffusionMap:
    """All that is needed to embed a row: nothing of other rows.

    Parameters
    ----------
    graph : AnchorGraph
        The anchors.
    projection : array of shape (m, k)
        What affinities are multiplied by.
    values : array of shape (k,) or longer
        Eigenvalues: near 1 where clusters are nearly apart.
    """

    graph: AnchorGraph
    projection: FloatArray
    values: FloatArray

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

    def embed_rows(self, rows: Rows) -> Rows:
        """The embedding as rows of one view, with the weights that the rows have."""
        return make_embedded_rows(self.embed(rows), rows.sample_weight)


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
