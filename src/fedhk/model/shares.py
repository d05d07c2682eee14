"""How much of what a site's own rows ask for is taken: what held-out rows confirm."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from fedhk._typing import FloatArray

# A share is taken only as far as it is surely above what two halves of the same rows agree on by chance.
STANDARD_ERRORS = 1.0

Asked = tuple[FloatArray, FloatArray]
"""What rows ask for, and with how much weight."""


def agreement(first: Asked, second: Asked) -> float:
    """The share of what one half of the rows asks for that the other half confirms, for all rows.

    Notes
    -----
    With t_1, t_2 what two halves of the rows ask for, the share that minimises the held-out error
    sum W_2 (t_2 - lambda t_1)^2 is sum W_2 t_2 t_1 / sum W_2 t_1^2: where gradient steps of `eqn:adaptive_lambda` on
    held-out rows end, clipped to [0, 1]. Learned on the rows themselves it always ends at 1.
    """
    return of_all_rows(confirmed(((first[0], *second), (second[0], *first))))


def confirmed(
    pairs: Iterable[tuple[FloatArray, FloatArray, FloatArray]], standard_errors: float = STANDARD_ERRORS
) -> float:
    """The share of a move, from 0 to 1, that held-out rows surely ask for.

    Parameters
    ----------
    pairs : iterable of (array, array, array)
        A move, where the rows that were held out from it ask to go, and with how much weight; all of one shape.
    standard_errors : float
        How sure it must be.
    """
    agreed: list[FloatArray] = []
    size = 0.0
    for move, asked, weight in pairs:
        agreed.append(weight * move * asked)
        size += float(np.sum(weight * move**2))
    if not size > 0:
        return 0.0
    both = sum(agreed[1:], agreed[0]).ravel()
    sure = float(both.sum()) - standard_errors * float(np.sqrt(np.sum(both**2)))
    return min(max(sure / size, 0.0), 1.0)


def of_all_rows(share: float) -> float:
    """The share of what all rows ask for, where `share` of what half of them asks for is confirmed.

    All rows are half as uncertain: lambda becomes 2 lambda / (1 + lambda).
    """
    return 2.0 * share / (1.0 + share)
