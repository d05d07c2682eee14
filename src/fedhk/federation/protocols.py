"""The centres protocol: sites pass over their rows a few times, the server averages their centres."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedhk._typing import FloatArray
from fedhk.federation.messages import ArraySpec, Message, check_arrays
from fedhk.federation.payloads import split
from fedhk.model.parameters import Parameters


@dataclass(frozen=True)
class LocalCenters:
    """A site's centres after its passes.

    Parameters
    ----------
    centers : tuple of array of shape (c, d_h)
        Local centres.
    masses : array of shape (c, s)
        How much of the site's rows each centre stands for, per view.
    view_weights : array of shape (s,)
        Local view weights.
    objective, rows : float
        J at the server's parameters, and the rows.
    """

    centers: tuple[FloatArray, ...]
    masses: FloatArray
    view_weights: FloatArray
    objective: float
    rows: float


def read_centers(message: Message, n_clusters: int, widths: Sequence[int]) -> LocalCenters:
    """Centres that a site sent, checked."""
    n_views = len(widths)
    check_arrays(
        message,
        {
            "centers": ArraySpec((n_clusters, sum(widths))),
            "masses": ArraySpec((n_clusters, n_views), non_negative=True),
            "sums": ArraySpec((n_views + 2,), non_negative=True),
        },
    )
    sums = np.asarray(message.arrays["sums"], np.float64)
    return LocalCenters(
        split(np.asarray(message.arrays["centers"], np.float64), widths),
        np.asarray(message.arrays["masses"], np.float64),
        sums[:n_views],
        float(sums[-2]),
        float(sums[-1]),
    )


def average_centers(
    parameters: Parameters, sites: Sequence[LocalCenters], rule: str, temperature: float
) -> tuple[Parameters, float]:
    """Average of the sites' centres and view weights (`eqn:global_A_EFKMVFC`, `eqn:global_V_EFKMVFC`), and J before.

    Parameters
    ----------
    parameters : Parameters
        What the round started from; a centre that no site holds stays there.
    sites : sequence of LocalCenters
        The sites.
    rule : {"mass", "rows", "quality"}
        By the rows that each centre stands for, by the rows of the site, or by softmax(-tau J) of the site's mean
        objective (`eqn:client_weights`).
    temperature : float
        tau.

    Notes
    -----
    The paper weighs by rows. A site without rows in a cluster then pulls its centre to wherever it was left; by mass it
    has no say. softmax is taken of the mean objective per row: of sums over rows it underflows and one site takes all.
    """
    rows = np.array([site.rows for site in sites])
    if not rows.any():
        return parameters, 0.0
    masses = np.stack([site.masses for site in sites])
    holds = masses > 0
    if rule == "quality":
        means = np.array([site.objective / site.rows if site.rows else np.inf for site in sites])
        filled = np.isfinite(means)
        scores = filled * np.exp(-temperature * np.where(filled, means - means.min(), 0.0))
        shares = scores / scores.sum()
    else:
        shares = rows / rows.sum()
    weights = masses if rule == "mass" else holds * shares[:, None, None]
    centers = []
    for view, old in enumerate(parameters.centers):
        weight = weights[:, :, view]
        total = weight.sum(axis=0)[:, None]
        summed = np.einsum("lk,lkd->kd", weight, np.stack([site.centers[view] for site in sites]))
        centers.append(np.divide(summed, total, out=np.array(old, dtype=np.float64), where=total > 0))
    view_weights = shares @ np.stack([site.view_weights for site in sites])
    better = replace(parameters, centers=tuple(centers), view_weights=view_weights / view_weights.sum())
    return better, float(sum(site.objective for site in sites))
