"""Views side by side in one table: the joint space, and the way back."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedhk._typing import FloatArray


def split_joint(joint: FloatArray, widths: Sequence[int]) -> tuple[FloatArray, ...]:
    """Features of each view, of shape (n, d_h) or (d_h,), in double precision."""
    return tuple(np.asarray(part, dtype=np.float64) for part in np.split(joint, np.cumsum(widths)[:-1], axis=-1))


def view_sums(joint: FloatArray, widths: Sequence[int]) -> FloatArray:
    """Sums over the features of each view, of shape (n, s)."""
    return np.asarray(np.add.reduceat(joint, np.concatenate([[0], np.cumsum(widths)[:-1]]), axis=-1))
