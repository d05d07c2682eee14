"""A model as a thing of its own: parameters, and how rows are brought to them. Estimators hold one; files store one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from fedhk._typing import FloatArray
from fedhk.data.scaling import Reference
from fedhk.data.views import Columns, Views, is_tensor, row_shape
from fedhk.model.cluster_summary import ClusterSummary
from fedhk.model.parameters import Parameters
from fedhk.model.rows import Rows

REFERENCE_ARRAYS = ("shift", "scale", "low", "span")
PARAMETER_NUMBERS = ("heat_time", "fuzzifier", "view_exponent")


@dataclass(frozen=True)
class FittedModel:
    """Everything that is needed to place new rows.

    Parameters
    ----------
    parameters : Parameters
        Centres and view weights, in model units.
    references : tuple of Reference
        How each view is brought to model units.
    view_names : tuple of str
        Name of each view.
    columns : tuple of (tuple of str, tuple of int or None)
        Column names of each view, where it came as a data frame; the shape of a row, where it came as a tensor.
    cluster_summary : ClusterSummary or None
        How large clusters are and how far rows spread in them, where later sites are to be told.
    """

    parameters: Parameters
    references: tuple[Reference, ...]
    view_names: tuple[str, ...]
    columns: tuple[Columns, ...]
    cluster_summary: ClusterSummary | None = None

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
        """Rows as the parameters see them; the views are in the order of the model."""
        return Rows(views, self.references, sample_weight)

    def seen(self, own: FittedModel, views: Views) -> tuple[Rows, Parameters]:
        """Rows, and the parameters of another model in the units of this one: objectives of several then compare.

        Parameters
        ----------
        own : FittedModel
            The other model; it may lack views.
        views : Views
            The rows, in the order of this model.
        """
        centers = dict(zip(own.view_names, own.centers(), strict=True))
        inner: list[FloatArray] = []
        for name, reference, shared in zip(self.view_names, self.references, self.parameters.centers, strict=True):
            flat = centers[name].reshape(len(centers[name]), -1) if name in centers else None
            varies = np.isfinite(reference.scale)
            inner.append(shared if flat is None else np.where(varies, reference.to_model(flat), 0.0))
        parameters = replace(self.parameters.free(), centers=tuple(inner), sizes=own.parameters.sizes)
        return self.rows(views), parameters

    def to_state(self) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
        """A JSON header and arrays that `from_state` takes."""
        arrays: dict[str, npt.NDArray[Any]] = {
            "view_weights": self.parameters.view_weights,
            "view_shares": self.parameters.view_shares,
        }
        views = []
        for view, (reference, name) in enumerate(zip(self.references, self.view_names, strict=True)):
            arrays[f"{view}.centers"] = self.parameters.centers[view]
            arrays |= {f"{view}.{part}": getattr(reference, part) for part in REFERENCE_ARRAYS}
            views.append(
                {
                    "name": name,
                    "columns": None if is_tensor(self.columns[view]) else self.columns[view],
                    "shape": self.columns[view] if is_tensor(self.columns[view]) else None,
                    "unit_rows": reference.unit_rows,
                    "heat_coef": reference.heat_coef,
                    "share": reference.share,
                }
            )
        header = {"views": views} | {name: getattr(self.parameters, name) for name in PARAMETER_NUMBERS}
        if self.parameters.sizes is not None:
            arrays["sizes"] = self.parameters.sizes
        if self.cluster_summary is not None:
            arrays["cluster_summary"] = self.cluster_summary.to_array()
        return header, arrays

    @classmethod
    def from_state(cls, header: dict[str, Any], arrays: dict[str, npt.NDArray[Any]]) -> Self:
        """The model that `to_state` described."""
        views = header["views"]
        references = tuple(
            Reference(
                unit_rows=bool(described["unit_rows"]),
                heat_coef=described["heat_coef"],
                share=float(described["share"]),
                **{part: np.asarray(arrays[f"{view}.{part}"], np.float64) for part in REFERENCE_ARRAYS},
            )
            for view, described in enumerate(views)
        )
        heat_time, fuzzifier, view_exponent = (float(header[name]) for name in PARAMETER_NUMBERS)
        parameters = Parameters(
            tuple(arrays[f"{view}.centers"] for view in range(len(views))),
            arrays["view_weights"],
            heat_time,
            fuzzifier,
            view_exponent,
            arrays["view_shares"],
            arrays.get("sizes"),
        )
        cluster_summary = (
            ClusterSummary.from_array(arrays["cluster_summary"], parameters.n_clusters)
            if "cluster_summary" in arrays
            else None
        )
        known = [v["columns"] or v.get("shape") for v in views]  # files of earlier versions say nothing of shapes
        columns = tuple(None if features is None else tuple(features) for features in known)
        return cls(parameters, references, tuple(v["name"] for v in views), columns, cluster_summary)
