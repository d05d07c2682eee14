"""A model as a thing of its own: parameters, and how rows are brought to them. Estimators hold one; files store one."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from fedhk._typing import FloatArray
from fedhk.data.scaling import Reference
from fedhk.data.views import Columns, Views, row_shape
from fedhk.model.parameters import Parameters
from fedhk.model.preparation import localise
from fedhk.model.rows import Rows


@dataclass(frozen=True)
class FittedModel:
    """Everything that is needed to place new rows."""

    parameters: Parameters
    references: tuple[Reference, ...]  # how each view is brought to model units
    view_names: tuple[str, ...]
    columns: tuple[Columns, ...]  # names of a data frame's columns, the shape of a tensor's row, or None; per view

    @property
    def widths(self) -> tuple[int, ...]:
        """Features per view."""
        return tuple(reference.width for reference in self.references)

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Shape of a row per view, (d_h,) in a table."""
        return tuple(row_shape(columns, width) for columns, width in zip(self.columns, self.widths, strict=True))

    def centers(self) -> list[FloatArray]:
        """Centres in the units and the shape of the input, one (c, d_h) array per view, (c, p, q) for a tensor."""
        return [
            reference.to_input(values).reshape(-1, *shape)
            for reference, values, shape in zip(self.references, self.parameters.centers, self.shapes, strict=True)
        ]

    @property
    def view_weights(self) -> FloatArray:
        """Weight of each view; they sum to 1."""
        return self.parameters.view_weights

    def rows(self, views: Views, sample_weight: FloatArray | None = None) -> Rows:
        """Rows as the parameters see them; the views are in the order of the model.

        Where coefficients ask for a site's own ranges or means, these rows count as those of one site.
        """
        return Rows(views, localise(self.references, views), sample_weight)

    def seen(self, own: FittedModel, views: Views) -> tuple[Rows, Parameters]:
        """Rows, and the parameters of another model in the units of this one: objectives of several then compare.

        The other model may lack views; `views` are in the order of this model.
        """
        centers = dict(zip(own.view_names, own.centers(), strict=True))
        inner = list(self.parameters.centers)
        for view, (name, reference) in enumerate(zip(self.view_names, self.references, strict=True)):
            if name in centers:
                flat = centers[name].reshape(-1, reference.width)
                inner[view] = np.where(np.isfinite(reference.scale), reference.to_model(flat), 0.0)
        parameters = replace(self.parameters.free(), centers=tuple(inner), sizes=own.parameters.sizes)
        return self.rows(views), parameters
