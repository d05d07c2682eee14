"""A model of embedded rows: an embedding makes one new view of the views that came in, and clusters are found there."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from fedhk._typing import FloatArray
from fedhk.data.views import Views
from fedhk.embedding.diffusion_map import DiffusionMap
from fedhk.model.fitted import FittedModel
from fedhk.model.parameters import Parameters
from fedhk.model.rows import Rows


@dataclass(frozen=True, kw_only=True)
class EmbeddedModel(FittedModel):
    """Everything that is needed to embed new rows and to place them.

    Parameters
    ----------
    parameters : Parameters
        Centres of embedded rows: one view.
    references, view_names, columns :
        Of the views that came in.
    diffusion : DiffusionMap
        The embedding.
    means : tuple of array of shape (c, d_h)
        Means of the rows of each cluster in the views that came in, in model units.
    sizes : array of shape (c,)
        Rows of each cluster, by membership.
    """

    diffusion: DiffusionMap
    means: tuple[FloatArray, ...]
    sizes: FloatArray

    @property
    def view_weights(self) -> FloatArray:
        """Views have equal shares in the embedding."""
        return np.full(len(self.references), 1.0 / len(self.references))

    def rows(self, views: Views, sample_weight: FloatArray | None = None) -> Rows:
        """New rows, embedded."""
        return self.diffusion.embed_rows(super().rows(views, sample_weight))

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
