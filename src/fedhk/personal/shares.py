"""How much of what a site's own rows ask for is taken: what held-out rows confirm."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedhk._typing import FloatArray

# A share is taken only as far as it is surely above what two halves of the same rows agree on by chance.
STANDARD_ERRORS = 2.0

Asked = tuple[FloatArray, FloatArray]
"""What rows ask for, and with how much weight."""


def agreement(first: Asked, second: Asked) -> float:
    """The share of what one half of the rows asks for that the other half confirms, for all rows.

    Notes
    -----
    With t_1, t_2 what two halves of the rows ask for, the share that minimises the held-out error
    sum W_2 (t_2 - lambda t_1)^2 is sum W_2 t_2 t_1 / sum W_2 t_1^2: where gradient steps of `eqn:adaptive_lambda` on
    held-out rows end, clipped to [0, 1]. Learned on the rows themselves it always ends at 1. The standard error is that
    of what the share leaves over, so that a difference that both halves show is taken whole; one number alone leaves
    nothing over, and is not believed.
    """
    numbers = int(np.count_nonzero((first[1] > 0) | (second[1] > 0)))
    if numbers < 2:
        return 0.0
    pairs = [(asked, seen, weight) for (asked, _), (seen, weight) in ((first, second), (second, first))]
    return of_all_rows(confirmed(pairs, STANDARD_ERRORS * float(np.sqrt(numbers / (numbers - 1)))))


def confirmed(pairs: Sequence[tuple[FloatArray, FloatArray, FloatArray]], standard_errors: float) -> float:
    """The share of a move, from 0 to 1, that held-out rows surely ask for.

    Parameters
    ----------
    pairs : sequence of (array, array, array)
        A move, where the rows that were held out from it ask to go, and with how much weight; all of one shape.
    standard_errors : float
        How sure it must be.

    Notes
    -----
    A move that few factors make is not as large in all cells. Only what the share leaves over counts as error, and not
    that cells differ; both halves tell of the same rows, so that their errors add.
    """
    size = sum(float(np.sum(weight * move**2)) for move, _, weight in pairs)
    if not size > 0:
        return 0.0
    share = sum(float(np.sum(weight * move * asked)) for move, asked, weight in pairs) / size
    share = min(max(share, 0.0), 1.0)
    left = [weight * move * (asked - share * move) for move, asked, weight in pairs]
    error = sum(float(np.sqrt(np.sum(part**2))) for part in left) / size
    return max(share - standard_errors * error, 0.0)


def of_all_rows(share: float) -> float:
    """The share of what all rows ask for, where `share` of what half of them asks for is confirmed.

    All rows are half as uncertain: lambda becomes 2 lambda / (1 + lambda).
    """
    return 2.0 * share / (1.0 + share)
