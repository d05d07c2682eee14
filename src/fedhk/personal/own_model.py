"""A site's own model: the global one, to which components add what the site's own rows justify.

The site's centres are s (A_k + b + d_k): the global ones on the site's own scale s, with an offset b that all clusters
of the site share, and what is left per cluster, d_k. Besides, its clusters are as frequent as they are there.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from functools import reduce
from operator import add

import numpy as np

from fedhk.model.joint import take
from fedhk.model.parameters import Parameters
from fedhk.model.passes import Passes
from fedhk.model.rows import Rows
from fedhk.model.statistics import Statistics
from fedhk.personal.component import Component, OwnModel
from fedhk.personal.shares import LEAST_ROWS
from fedhk.personal.spread import Spread

# Passes over the rows; memberships follow the centres, so that one is not enough.
PASSES = 10


def fit_own_model(
    rows: Rows,
    common: Parameters,
    components: Sequence[Component[Statistics]],
    spreads: Sequence[Spread] = (),
    *,
    seed: int = 0,
    passes: int = PASSES,
    workers: int = 1,
) -> OwnModel:
    """Fit a site's own model.

    Parameters
    ----------
    rows : Rows
        The site's rows.
    common : Parameters
        The global model.
    components : sequence of Component
        What the site may have of its own, in the order in which it is learned. What comes later explains what is left.
    spreads : sequence of Spread
        The component that changes how rows are read, where there is one.
    seed : int
        Which rows are held out.
    passes : int
        Passes over the rows.
    workers : int
        Threads.
    """
    own = OwnModel.start(rows, common)
    if rows.n_rows == 0:
        return own
    for spread in spreads:
        own = spread.fit_rows(own, seed)
    order = np.random.default_rng(seed).permutation(rows.n_rows)
    halves = [np.sort(half) for half in (order[::2], order[1::2]) if len(half)]
    with ExitStack() as stack:
        scans = [stack.enter_context(Passes(take(own.rows, half), common.n_clusters, workers)) for half in halves]
        for _ in range(passes):
            statistics = [scan.statistics(own.current) for scan in scans]
            whole, held_out = reduce(add, statistics), statistics if rows.n_rows >= LEAST_ROWS else []
            for component in components:
                own = component.fit(own, held_out, whole)
    for component in components:
        own = component.finish(own)
    return own
