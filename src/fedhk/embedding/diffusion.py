"""An embedding of rows by heat diffusion: rows from which heat reaches the same anchors lie in the same direction.

Clusters need not be round: what counts is whether heat can go from one row to another over rows in between.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from fedhk._typing import FloatArray
from fedhk.data.scaling import Reference
from fedhk.data.views import Views
from fedhk.embedding.affinity import AnchorGraph
from fedhk.embedding.anchors import anchor_count, complete_candidates, make_anchors, stand_in_rows
from fedhk.embedding.spectrum import Ritz, gram, gram_ritz, products, ritz, start_directions
from fedhk.model.rows import Rows
from fedhk.starts.seeding import sample_rows

# The name of the one view of embedded rows.
EMBEDDED = "diffusion"

# Directions beyond the wanted ones in the first exchange, the error at which a vector is good enough, and the most
# exchanges that are spent on it.
EXTRA_DIRECTIONS, TOL, MOST_EXCHANGES = 2, 0.02, 6

# The same at one site alone; up to so many columns the whole Gram matrix is solved.
GRAM_COLUMNS, ALONE_TOL, ALONE_EXCHANGES = 1000, 1e-6, 20


@dataclass(frozen=True)
class DiffusionSettings:
    """What a user chooses about the diffusion; defaults by measurement, see `benchmarks/results/diffusion-tried.md`.

    Parameters
    ----------
    n_anchors : int
        Anchors p; fewer where rows are few, more where clusters are many (`anchor_count`).
    neighbours, scale, joint_weight :
        As in `AnchorGraph`.
    tol : float
        Error of the eigenvectors at which no further exchange is spent on them.
    max_exchanges : int
        Most exchanges for the eigenvectors.
    count_clusters : bool
        Whether the number of clusters is found by the eigengap.
    """

    n_anchors: int = 300
    neighbours: int = 9
    scale: float = 3.0
    joint_weight: float = 0.5
    tol: float = TOL
    max_exchanges: int = MOST_EXCHANGES
    count_clusters: bool = False


@dataclass(frozen=True)
class Diffusion:
    """All that is needed to embed a row: nothing of other rows.

    Parameters
    ----------
    graph : AnchorGraph
        The anchors.
    projection : array of shape (m, k)
        What affinities are multiplied by.
    values : array of shape (k,)
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
            result[part] = embedded(affinities, self.projection)
        return result

    def embedded_rows(self, rows: Rows) -> Rows:
        """The embedding as rows of one view, for the rounds."""
        return rows_of(self.embed(rows), rows.sample_weight)

    def to_arrays(self) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
        """A JSON header and arrays that `from_arrays` takes."""
        graph = self.graph
        header = {
            "views": len(graph.anchors),
            "neighbours": graph.neighbours,
            "scale": graph.scale,
            "joint_weight": graph.joint_weight,
        }
        arrays = {f"diffusion.{view}.anchors": centers for view, centers in enumerate(graph.anchors)}
        return header, arrays | {"diffusion.projection": self.projection, "diffusion.values": self.values}

    @classmethod
    def from_arrays(cls, header: dict[str, Any], arrays: dict[str, npt.NDArray[Any]]) -> Self:
        """What `to_arrays` gave."""
        anchors = tuple(
            np.asarray(arrays[f"diffusion.{view}.anchors"], np.float64) for view in range(int(header["views"]))
        )
        graph = AnchorGraph(anchors, int(header["neighbours"]), float(header["scale"]), float(header["joint_weight"]))
        return cls(graph, arrays["diffusion.projection"], arrays["diffusion.values"])


def embedded(affinities: Any, projection: FloatArray) -> FloatArray:
    """Rows of length 1 from their affinities."""
    values = np.asarray(affinities @ projection)
    lengths = np.linalg.norm(values, axis=1, keepdims=True)
    return np.asarray(np.divide(values, lengths, out=np.zeros(values.shape), where=lengths > 0))


def embedded_reference(n_components: int) -> Reference:
    """Embedded rows as they are: of length 1, and clusters nearly at right angles, so that no moments are needed."""
    zero, one = np.zeros(n_components), np.ones(n_components)
    return Reference(False, zero, one, "uniform", zero, one, 1.0)


def rows_of(embedding: FloatArray, sample_weight: FloatArray | None = None) -> Rows:
    """An embedding as rows of one view; a row of zeros had no value, and has none here."""
    nothing = np.asarray(~embedding.any(axis=1))
    table = np.where(nothing[:, None], np.nan, embedding)
    views = Views((table,), (EMBEDDED,), len(table), np.dtype(np.float64), (bool(nothing.any()),), (None,))
    return Rows(views, (embedded_reference(table.shape[1]),), sample_weight)


def make_graph(
    candidates: Rows, references: tuple[Reference, ...], n_anchors: int, settings: DiffusionSettings, seed: int
) -> AnchorGraph:
    """The graph of anchors made from complete candidates, or from rows."""
    anchors = make_anchors(candidates, n_anchors, references, np.random.RandomState(seed))
    return AnchorGraph(anchors, settings.neighbours, settings.scale, settings.joint_weight)


def stand_in_affinities(graph: AnchorGraph, candidates: Rows, seed: int) -> Any:
    """Affinities of rows that stand in for those of the sites, CSR."""
    parts = stand_in_rows(candidates, np.random.RandomState(seed))
    return sp.vstack([graph.affinities(part) for part in parts], format="csr")


def diffuse(rows: Rows, n_components: int, settings: DiffusionSettings, seed: int) -> tuple[Diffusion, Any]:
    """The diffusion of the rows of one site alone, and their affinities."""
    sample = complete_candidates(sample_rows(rows, n_components, np.random.RandomState(seed)))
    weight = rows.sample_weight
    total = float(rows.n_rows if weight is None else weight.sum())
    count = anchor_count(n_components, total, settings.n_anchors)
    graph = make_graph(sample, rows.references, count, settings, seed)
    affinities = graph.affinities(rows)
    found = _alone(affinities, n_components, weight)
    return Diffusion(graph, found.projection(n_components), found.values[:n_components]), affinities


def _alone(affinities: Any, n_components: int, weight: FloatArray | None) -> Ritz:
    """Eigenvectors at one site, where an exchange costs nothing: from the whole Gram matrix, or to many digits."""
    if affinities.shape[1] <= GRAM_COLUMNS:
        return gram_ritz(gram(affinities, weight), n_components)
    known: list[tuple[FloatArray, FloatArray]] = []
    weighted = affinities if weight is None else sp.csr_array(sp.diags_array(np.sqrt(weight)) @ affinities)
    directions = start_directions(weighted, n_components + EXTRA_DIRECTIONS)
    while True:
        known.append((directions, products(affinities, directions, weight)))
        found = ritz(known, n_components)
        directions = found.next_directions(n_components, ALONE_TOL)
        if not directions.shape[1] or len(known) >= ALONE_EXCHANGES:
            return found
