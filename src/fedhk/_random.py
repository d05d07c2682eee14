"""Sources of random numbers; NumPy's global state is neither read nor changed."""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np

RandomStateLike = int | np.integer[Any] | np.random.Generator | np.random.RandomState | None
"""What ``random_state`` may be."""


def check_generator(random_state: RandomStateLike) -> np.random.Generator:
    """Make a generator of random numbers from what scikit-learn users pass as ``random_state``.

    A generator is used as it is and moves on; a ``RandomState`` gives a seed and moves on; None asks the operating
    system for a seed.
    """
    if random_state is None or isinstance(random_state, np.random.Generator):
        return np.random.default_rng(random_state)
    if isinstance(random_state, np.random.RandomState):
        return np.random.default_rng(random_state.randint(2**32, size=4, dtype=np.uint32))
    if isinstance(random_state, Integral) and not isinstance(random_state, bool) and random_state >= 0:
        return np.random.default_rng(int(random_state))
    raise ValueError(
        f"random_state must be a whole number of at least 0, a numpy Generator, a numpy RandomState or None, "
        f"got {random_state!r}."
    )


def seeded(*numbers: int) -> np.random.RandomState:
    """Make a random state that is seeded by these numbers, so that the same run draws the same."""
    return np.random.RandomState(np.random.MT19937(np.random.SeedSequence(numbers)))
