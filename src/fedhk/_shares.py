"""Shares that are possible: not negative, and with a given sum."""

from __future__ import annotations

import numpy as np

from fedhk._typing import FloatArray


def share_out(counts: FloatArray, total: FloatArray) -> FloatArray:
    """Find the nearest counts, (n, places), that are not negative and add up to given totals, (n,)."""
    # the projection onto a simplex (Held, Wolfe and Crowder 1974): all places lose the same, down to 0
    places = np.arange(1, counts.shape[1] + 1)
    high = -np.sort(-counts, axis=1)
    lost = (np.cumsum(high, axis=1) - total[:, None]) / places
    last = np.maximum((high > lost).sum(axis=1), 1) - 1
    nearest: FloatArray = np.maximum(counts - np.take_along_axis(lost, last[:, None], 1), 0.0) * (total > 0)[:, None]
    return nearest
