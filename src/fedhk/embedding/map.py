"""The map that embeds a row by heat diffusion."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedhk._typing import FloatArray
from fedhk.embedding.affinity import AnchorGraph
from fedhk.embedding.spectrum import embed_affinities
from fedhk.model.rows import Rows


@dataclass(frozen=True)
class DiffusionMap:
    """A map that embeds a row, given the anchors and the row alone."""

    graph: AnchorGraph
    projection: FloatArray  # what affinities are multiplied by, of shape (m, k)
    values: FloatArray  # at least k eigenvalues: near 1 where clusters are nearly apart

    @property
    def n_components(self) -> int:
        """Dimensions of the embedding."""
        return int(self.projection.shape[1])

    def embed(self, rows: Rows) -> FloatArray:
        """Embed rows: of length 1, shape (n, k); a row without any value is 0."""
        result = np.empty((rows.n_rows, self.n_components))
        for part, affinities in self.graph.chunks(rows):
            result[part] = embed_affinities(affinities, self.projection)
        return result
