"""A model as a thing of its own: parameters, and how rows are brought to them. Estimators hold one; files store one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from fedhk._typing import FloatArray
from fedhk.data.scaling import Reference
from fedhk.model.parameters import Parameters

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
    columns : tuple of (tuple of str or None)
        Column names of each view, where it came as a data frame.
    """

    parameters: Parameters
    references: tuple[Reference, ...]
    view_names: tuple[str, ...]
    columns: tuple[tuple[str, ...] | None, ...]

    @property
    def widths(self) -> tuple[int, ...]:
        """Features per view."""
        return tuple(reference.width for reference in self.references)

    def centers(self) -> list[FloatArray]:
        """Centres in the units of the input, one (c, d_h) array per view."""
        return [
            reference.to_input(values)
            for reference, values in zip(self.references, self.parameters.centers, strict=True)
        ]

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
                    "columns": self.columns[view],
                    "unit_rows": reference.unit_rows,
                    "heat_coef": reference.heat_coef,
                    "share": reference.share,
                }
            )
        return {"views": views} | {name: getattr(self.parameters, name) for name in PARAMETER_NUMBERS}, arrays

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
        parameters = Parameters(
            centers=tuple(arrays[f"{view}.centers"] for view in range(len(views))),
            view_weights=arrays["view_weights"],
            view_shares=arrays["view_shares"],
            **{name: float(header[name]) for name in PARAMETER_NUMBERS},
        )
        columns = tuple(None if v["columns"] is None else tuple(v["columns"]) for v in views)
        return cls(parameters, references, tuple(v["name"] for v in views), columns)
