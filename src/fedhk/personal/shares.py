"""Shares: how much of a move that one half of a site's rows supports the other half confirms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fedhk._typing import FloatArray

# Fewest rows of which half can be held out. A smaller site has the global model.
LEAST_ROWS = 10

# Rows for which the common model counts against a site's own rows: a site, or a cluster at a site, with as many rows is
# believed by half. It is half of the fewest rows that a site can learn from, so that no such site is held back by more.
PRIOR_ROWS = 5.0

# A share is lowered by so many standard errors. Of moves that two halves make by chance, 3 to 7 in a hundred then keep
# a share above 0 (200 numbers and 2, simulated), and the mean share is below .04.
STANDARD_ERRORS = 2.0


class Move(NamedTuple):
    """A move of numbers of the model that rows support, and its weight; two arrays of the same shape."""

    step: FloatArray
    weight: FloatArray


def agreement(first: Move, second: Move) -> float:
    """Find the share of what one half of the rows asks for that the other half confirms, for all rows.

    With t_1, t_2 what two halves of the rows ask for, the share that minimises the held-out error
    sum W_2 (t_2 - lambda t_1)^2 is sum W_2 t_2 t_1 / sum W_2 t_1^2: where gradient steps of `eqn:adaptive_lambda` on
    held-out rows end, clipped to [0, 1]. On the rows that t_1 was found on no share is better than 1. The standard
    error is that of what the share leaves over, so that a difference that both halves show is taken whole. One number
    alone leaves nothing over and is not believed.
    """
    numbers = int(np.count_nonzero((first[1] > 0) | (second[1] > 0)))
    if numbers < 2:
        return 0.0
    pairs = [(asked, seen, weight) for (asked, _), (seen, weight) in ((first, second), (second, first))]
    return share_of_all_rows(confirm_share(pairs, STANDARD_ERRORS * float(np.sqrt(numbers / (numbers - 1)))))


def confirm_share(pairs: Sequence[tuple[FloatArray, FloatArray, FloatArray]], standard_errors: float) -> float:
    """Find the share of a move, from 0 to 1, that held-out rows surely ask for, by so many standard errors.

    Each of `pairs` is a move, where the rows that were held out from it ask to go, and with how much weight. A move
    that few factors make is not as large in all cells. Only what the share leaves over counts as error, and not
    that cells differ. Both halves tell of the same rows, so that their errors add.
    """
    size = sum(float(np.sum(weight * move**2)) for move, _, weight in pairs)
    if not size > 0:
        return 0.0
    share = sum(float(np.sum(weight * move * asked)) for move, asked, weight in pairs) / size
    share = min(max(share, 0.0), 1.0)
    left = [weight * move * (asked - share * move) for move, asked, weight in pairs]
    error = sum(float(np.sqrt(np.sum(part**2))) for part in left) / size
    return max(share - standard_errors * error, 0.0)


def share_of_all_rows(share: float) -> float:
    """Convert a share of the move of half of the rows to a share of the move of all rows.

    All rows are half as uncertain: lambda becomes 2 lambda / (1 + lambda).
    """
    return 2.0 * share / (1.0 + share)


def measure_share(asked: Move, step: FloatArray) -> float:
    """Measure the size of a step as a share of the move that rows support, from 0 to 1."""
    wanted, weight = asked
    size = float(np.sum(weight * wanted**2))
    return min(max(float(np.sum(weight * wanted * step)) / size, 0.0), 1.0) if size > 0 else 0.0


def mean_move(values: FloatArray) -> Move:
    """Average each feature over the rows that have it; the weight is how many they are."""
    seen = (~np.isnan(values)).sum(axis=0)
    return Move(np.nansum(values, axis=0) / np.maximum(seen, 1), seen.astype(np.float64))
