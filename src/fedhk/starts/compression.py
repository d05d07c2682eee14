"""Fewer coordinates for few rows: views with more features than rows, in axes that keep every distance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedhk._typing import FloatArray
from fedhk.model.rows import Rows


@dataclass(frozen=True)
class Axes:
    """Where a view's rows lie: values are mean + coordinates @ basis.

    Parameters
    ----------
    mean : array of shape (d,)
        A point of the space that the rows span.
    basis : array of shape (r, d) or None
        Orthonormal axes; None where the view keeps its own coordinates.
    """

    mean: FloatArray
    basis: FloatArray | None

    def expand(self, centers: FloatArray) -> FloatArray:
        """Centres in the view's own coordinates."""
        return centers if self.basis is None else self.mean + centers @ self.basis


def compress(rows: Rows, parts: Sequence[FloatArray]) -> tuple[Rows, tuple[Axes, ...]]:
    """Rows with each view that is wider than the rows are many in as many coordinates as there are rows, at most.

    Seeding compares many starts on few rows; on text the features are ten times as many as the rows. Squared distances
    between rows, and to any mean of rows, are the same in both coordinates. A view with missing cells or with
    coefficients stays as it is: its distances are no longer plain ones.

    Parameters
    ----------
    rows : Rows
        The rows.
    parts : sequence of array of shape (n, d_h)
        Their views in model units.
    """
    tables, references, axes = list(rows.views.tables), list(rows.references), []
    for view, (part, reference) in enumerate(zip(parts, rows.references, strict=True)):
        plain = reference.heat_coef == "uniform" and not rows.views.missing[view] and tables[view] is not None
        if not plain or reference.width <= len(part):
            axes.append(Axes(np.zeros(reference.width), None))
            continue
        mean = part.mean(axis=0)
        values, vectors = np.linalg.eigh((part - mean) @ (part - mean).T)
        kept = values > 1e-12 * max(values.max(initial=0.0), 1e-300)
        lengths = np.sqrt(values[kept])
        coordinates = np.ascontiguousarray(vectors[:, kept] * lengths, dtype=rows.dtype)
        if not coordinates.shape[1]:  # all rows alike
            axes.append(Axes(np.zeros(reference.width), None))
            continue
        axes.append(Axes(mean, (vectors[:, kept] / lengths).T @ (part - mean)))
        tables[view] = coordinates
        zeros, ones = np.zeros(coordinates.shape[1]), np.ones(coordinates.shape[1])
        references[view] = replace(reference, unit_rows=False, shift=zeros, scale=ones, low=zeros, span=ones)
    views = replace(rows.views, tables=tuple(tables))
    return Rows(views, tuple(references), rows.sample_weight, rows.spread), tuple(axes)
