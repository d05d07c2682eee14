"""The objective with a model of its own for every site: of a finished fit, and of the starts that it compares."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedhk.model.parameters import Parameters
from fedhk.model.rows import Rows
from fedhk.personal.outcome import SiteTerms
from fedhk.personal.shares import PRIOR_ROWS

# Passes for the own model of a site at each start. Only the order of starts matters, which few passes show.
OWN_PASSES = 5


def global_objective(
    sites: Sequence[SiteTerms],
    *,
    temperature: float | None,
    center_pull: float,
    view_pull: float,
    tensor_pull: float = 0.0,
) -> dict[str, float]:
    """Compute the global objective with personalization (`eqn:fed_global_obj_personalization`) and its terms, per row.

    "objective" is sum_l omega_l J_l / n_l, "center_distance", "view_distance" and "tensor_distance" are the same of
    R_person, R_view and R_tensor, and "total" is the objective with gamma (`center_pull`), eta (`view_pull`) and gamma
    of `eqn:tensor_fed_global_obj` (`tensor_pull`) times the three. omega_l is the share of the rows, or softmax(-tau J
    / n) with a `temperature` tau (`eqn:client_weights`).

    The paper adds sums over rows of sites of any size. Here all terms of a site are divided by its rows, so that
    omega_l weighs sites by what it says, and gamma and eta count rows.
    """
    filled = [site for site in sites if site.rows]
    found = [[s.objective, s.center_distance, s.view_distance, s.tensor_distance] for s in filled]
    terms = np.array(found).reshape(-1, 4)
    rows = np.array([site.rows for site in filled], dtype=np.float64)
    means = terms / rows[:, None]
    weights = rows if temperature is None else np.exp(-temperature * (means[:, 0] - means[:, 0].min(initial=np.inf)))
    weights = np.asarray(weights / max(float(weights.sum()), 1e-300))
    objective, centers, views, tensor = (weights @ means).tolist()
    total = objective + center_pull * centers + view_pull * views + tensor_pull * tensor
    distances = {"center_distance": centers, "view_distance": views, "tensor_distance": tensor}
    return {"objective": objective, **distances, "total": total}


def personal_objective(sites: Sequence[Rows], common: Parameters) -> float:
    """Compute the objective of all sites with centres of their own, and a price for moving them from the common ones.

    `sites` are the candidates of each site, all in one space, as `candidate_rows` makes them. This is
    `eqn:fed_global_obj_personalization` with an R_person of `PRIOR_ROWS` rows. Starts that explain all rows together
    alike well differ by how well sites can make them their own: that tells clusters that are the same thing at every
    site from clusters that are not.
    """
    return sum(_fit_site(rows, common) for rows in sites)


def _fit_site(rows: Rows, common: Parameters) -> float:
    """Compute the term of one site by proximal steps, for many starts at once."""
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
        objective = float(np.sum(shares * distances)) + common.heat_time * PRIOR_ROWS * float(factors @ moved)
        pulls = [(shares * kernel).T for kernel in kernels]
        own = [
            (pull @ x + PRIOR_ROWS * a) / (pull @ o + PRIOR_ROWS)
            for pull, x, o, a in zip(pulls, values, seen, common.centers, strict=True)
        ]
    return objective
