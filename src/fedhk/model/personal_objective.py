"""The objective with centres of its own for every site: by what starts are compared where sites will have their own."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedhk.model.parameters import Parameters
from fedhk.model.rows import Rows

# Rows by which a common centre pulls each own one, and passes in which a site makes a start its own.
PULL_ROWS, OWN_PASSES = 5.0, 5


def personal_objective(sites: Sequence[Rows], common: Parameters) -> float:
    """The objective of all sites with centres of their own, and a price for moving them from the common ones.

    Parameters
    ----------
    sites : sequence of Rows
        The candidates of each site, all in one frame, as `candidate_rows` makes them.
    common : Parameters
        Centres that all sites begin with.

    Notes
    -----
    This is `eqn:fed_global_obj_personalization` with an R_person of `PULL_ROWS` rows. Starts that explain all rows
    together alike well differ by how well sites can make them their own: that tells clusters that are the same thing at
    every site from clusters that are not.
    """
    return sum(_of_site(rows, common) for rows in sites)


def _of_site(rows: Rows, common: Parameters) -> float:
    """One site's part, by proximal steps; all products are of matrices, because this is done for many starts."""
    tables = [np.asarray(table) for table in rows.views.tables]
    seen = [(~np.isnan(table)).astype(np.float64) for table in tables]
    values = [np.nan_to_num(table, nan=0.0) for table in tables]
    weight, spread = np.asarray(rows.sample_weight)[:, None], np.asarray(rows.spread)
    factors, power = common.view_factors, 1.0 / (common.fuzzifier - 1.0)
    squares = [np.square(table).sum(axis=1) + spread[:, view] for view, table in enumerate(values)]
    own, objective = list(common.centers), 0.0
    for _ in range(OWN_PASSES):
        kernels = [
            np.exp(np.minimum(-common.heat_time * (s[:, None] - 2 * x @ a.T + o @ np.square(a).T), 0.0))
            for s, x, o, a in zip(squares, values, seen, own, strict=True)
        ]
        distances = sum(factor * (1.0 - kernel) for factor, kernel in zip(factors, kernels, strict=True))
        distances = np.maximum(distances, 1e-300)
        raised = (distances.min(axis=1, keepdims=True) / distances) ** power
        shares = (raised / raised.sum(axis=1, keepdims=True)) ** common.fuzzifier * weight
        moved = [np.square(a - b).sum() for a, b in zip(own, common.centers, strict=True)]
        objective = float(np.sum(shares * distances)) + common.heat_time * PULL_ROWS * float(factors @ moved)
        pulls = [(shares * kernel).T for kernel in kernels]
        own = [
            (pull @ x + PULL_ROWS * a) / (pull @ o + PULL_ROWS)
            for pull, x, o, a in zip(pulls, values, seen, common.centers, strict=True)
        ]
    return objective
