"""A basis of few directions per view: parameters in its coordinates, and in features again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fedhk._typing import FloatArray
from fedhk.model.parameters import Parameters


def orthonormal(directions: FloatArray) -> FloatArray:
    """A basis, of shape (d_h, q_h), from rows that were orthonormal before they were rounded.

    Every column points the way of its row: what is orthonormal already stays as it is.
    """
    columns, triangle = np.linalg.qr(directions.T)
    return np.asarray(columns * np.where(np.diag(triangle) < 0, -1.0, 1.0))


def compressed(parameters: Parameters, basis: Sequence[FloatArray]) -> Parameters:
    """Parameters in the coordinates of a basis."""
    centers = tuple(values @ e for values, e in zip(parameters.centers, basis, strict=True))
    form = parameters.form
    return replace(parameters, centers=centers, form=None if form is None else form.compressed(basis))


def expanded(inner: Parameters, basis: Sequence[FloatArray]) -> Parameters:
    """Parameters in features again."""
    centers = tuple(values @ e.T for values, e in zip(inner.centers, basis, strict=True))
    return replace(inner, centers=centers, form=None if inner.form is None else inner.form.expanded(basis))
