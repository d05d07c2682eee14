"""How much of what a site's own rows ask for is taken: what held-out rows confirm."""

from __future__ import annotations

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
    held-out rows end, clipped to [0, 1]. Learned on the rows themselves it always ends at 1. A share lambda of half of
    the rows is 2 lambda / (1 + lambda) of all.
    """
    agreed: list[FloatArray] = []
    size = 0.0
    for (asked, _), (seen, weight) in ((first, second), (second, first)):
        agreed.append(weight * asked * seen)
        size += float(np.sum(weight * asked**2))
    if not size > 0:
        return 0.0
    both = (agreed[0] + agreed[1]).ravel()
    sure = float(both.sum()) - STANDARD_ERRORS * float(np.sqrt(np.sum(both**2)))
    share = min(max(sure / size, 0.0), 1.0)
    return 2.0 * share / (1.0 + share)
