"""A model of embedded rows: an embedding makes one new view of the views that came in, and clusters are found there."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from fedhk._typing import FloatArray
from fedhk.data.views import Views
from fedhk.embedding.diffusion import Diffusion
from fedhk.model.fitted import FittedModel
from fedhk.model.parameters import Parameters
from fedhk.model.rows import Rows


@dataclass(frozen=True)
class EmbeddedModel(FittedModel):
    """Everything that is needed to embed new rows and to place them.

    Parameters
    ----------
    parameters : Parameters
        Centres of embedded rows: one view.
    references, view_names, columns :
        Of the views that came in.
    diffusion : Diffusion
        The embedding.
    means : tuple of array of shape (c, d_h)
        Means of the rows of each cluster in the views that came in, in model units.
    sizes : array of shape (c,)
        Rows of each cluster, by membership.
    """

    diffusion: Diffusion = None  # type: ignore[assignment]
    means: tuple[FloatArray, ...] = ()
    sizes: FloatArray = None  # type: ignore[assignment]

    @property
    def view_weights(self) -> FloatArray:
        """Views have equal shares in the embedding."""
        return np.full(len(self.references), 1.0 / len(self.references))

    def rows(self, views: Views, sample_weight: FloatArray | None = None) -> Rows:
        """New rows, embedded."""
        return self.diffusion.embedded_rows(super().rows(views, sample_weight))

    def centers(self) -> list[FloatArray]:
        """Means of the rows of each cluster, in the units and the shape of the input."""
        return self._outer.centers()

    def seen(self, own: FittedModel, views: Views) -> tuple[Rows, Parameters]:
        """As `FittedModel.seen`; centres of a model that is not of this embedding are embedded as rows are."""
        if isinstance(own, EmbeddedModel) and np.array_equal(own.diffusion.projection, self.diffusion.projection):
            return own.rows(views), own.parameters
        inner = self._outer.seen(own, views)[1].centers
        tables = tuple(np.ascontiguousarray(r.to_input(c)) for r, c in zip(self.references, inner, strict=True))
        points = Views(
            tables, self.view_names, len(inner[0]), np.dtype(np.float64), (False,) * len(inner), self.columns
        )
        return self.rows(views), replace(self.parameters, centers=(self.diffusion.embed(super().rows(points)),))

    def to_state(self) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
        """A JSON header and arrays that `from_state` takes."""
        header, arrays = self._outer.to_state()
        described, parts = self.diffusion.to_arrays()
        inner = {"embedded.centers": self.parameters.centers[0], "embedded.sizes": self.sizes}
        return header | {"diffusion": described}, arrays | parts | inner

    @classmethod
    def from_state(cls, header: dict[str, Any], arrays: dict[str, npt.NDArray[Any]]) -> Self:
        """The model that `to_state` described."""
        outer, one = FittedModel.from_state(header, arrays), np.ones(1)
        inner = replace(outer.parameters, centers=(arrays["embedded.centers"],), view_weights=one, view_shares=one)
        return cls(
            inner,
            outer.references,
            outer.view_names,
            outer.columns,
            diffusion=Diffusion.from_arrays(header["diffusion"], arrays),
            means=outer.parameters.centers,
            sizes=arrays["embedded.sizes"],
        )

    @property
    def _outer(self) -> FittedModel:
        """Clusters as the views that came in show them."""
        shares = np.ones(len(self.references))
        parameters = replace(self.parameters, centers=self.means, view_weights=self.view_weights, view_shares=shares)
        return FittedModel(parameters, self.references, self.view_names, self.columns)


def read_model(header: dict[str, Any], arrays: dict[str, npt.NDArray[Any]]) -> FittedModel:
    """The model that `to_state` of any kind described."""
    return (EmbeddedModel if "diffusion" in header else FittedModel).from_state(header, arrays)
