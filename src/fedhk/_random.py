"""Sources of randomness that are chosen by numbers, so that the same run draws the same."""

from __future__ import annotations

import numpy as np


def seeded(*numbers: int) -> np.random.RandomState:
    """A source of randomness that these numbers choose, other for each of them."""
    return np.random.RandomState(np.random.MT19937(np.random.SeedSequence(numbers)))
