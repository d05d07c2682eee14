"""How many clusters there are: the largest number of which every cluster comes back in halves that share no row."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.base import clone

from fedhk.after.stability import STABLE, stability
from fedhk.after.tables import PrintedTable
from fedhk.data.checks import check_count
from fedhk.data.clients import check_clients
from fedhk.data.frames import pandas
from fedhk.privacy.mechanism import refuse_budget
from fedhk.summary.words import number

# Numbers that are tried where none are given, as by HeatKernelMVC.
NUMBERS = range(2, 11)

# Halves of the rows for each number: the weakest cluster of many numbers need not be known to the second digit.
HALVES = 10


@dataclass(frozen=True)
class TriedNumber:
    """A number of clusters: how far halves agree on its weakest cluster, and on all of them, on average."""

    n_clusters: int
    weakest: float
    mean: float


@dataclass(frozen=True, eq=False)
class NumberOfClusters:
    """How many clusters there are.

    Parameters
    ----------
    n_clusters : int
        The largest number of which every cluster is stable; 1 where there is none.
    is_clear : bool
        Whether there is one.
    tried : list of TriedNumber
        All numbers that were tried.
    model : estimator or None
        The fitted model with that number; None where it is 1.
    """

    n_clusters: int
    is_clear: bool
    tried: list[TriedNumber]
    model: Any

    def frame(self) -> Any:
        """One line for each number, as a pandas data frame."""
        return pandas().DataFrame([vars(one) for one in self.tried])

    def table(self) -> PrintedTable:
        """One line for each number."""
        head = ["clusters", "halves agree on the weakest", "on all, mean"]
        rows = [[str(one.n_clusters), number(one.weakest, 2), number(one.mean, 2)] for one in self.tried]
        return PrintedTable("How many clusters", head, rows, [self.reason])

    @property
    def reason(self) -> str:
        """Why this number, in a sentence."""
        if self.is_clear:
            return f"{self.n_clusters} is the largest number of which halves of the rows find every cluster alike."
        return (
            "No number of clusters of which halves of the rows find every cluster alike: as far as this can tell, one."
        )

    def _repr_html_(self) -> str:
        return self.table()._repr_html_()

    def __str__(self) -> str:
        return str(self.table())


def how_many(
    estimator: Any, sites: Any, *, numbers: Iterable[int] = NUMBERS, n_resamples: int = HALVES, random_state: int = 0
) -> NumberOfClusters:
    """Find how many clusters there are, over sites that keep their rows.

    The estimator is fitted with each number, and halves of the rows are clustered anew (`stability`).

    Parameters
    ----------
    estimator : estimator
        A federated clusterer of FedHK with the settings to use; it is not changed.
    sites : dict or list of sites
        As in `fit`.
    numbers : iterable of int, default=range(2, 11)
        Numbers of clusters to try, from 2 on.
    n_resamples : int, default=10
        Halves of the rows for each number.
    random_state : int, default=0
        What halves are drawn with.

    Returns
    -------
    NumberOfClusters
        The number, all that were tried, and the fitted model.

    Examples
    --------
    >>> import fedhk
    >>> sites = fedhk.datasets.make_sites(3, 60, n_clusters=3, separation=9, shift=0.2, random_state=0).sites
    >>> fedhk.how_many(fedhk.EFKMVC(random_state=0), sites, numbers=[2, 3, 4]).n_clusters
    3
    """
    wanted = list(numbers)
    if not wanted or any(isinstance(c, bool) or not isinstance(c, Integral) or c < 2 for c in wanted):
        raise ValueError(f"numbers={wanted!r} must be whole numbers from 2 on, at least one.")
    n_resamples = check_count(n_resamples, "n_resamples", minimum=2)
    refuse_budget(estimator, "privacy does not go with how_many: every number would spend the budget of a fit again.")
    rows = sum(views.n_rows for views in check_clients(sites).values())
    if max(wanted) > rows // 2:
        raise ValueError(
            f"numbers up to {max(wanted)} need {2 * max(wanted)} rows for two halves; the sites have {rows}."
        )
    tried, models = [], {}
    for c in sorted({int(c) for c in wanted}):
        models[c] = clone(estimator).set_params(n_clusters=c).fit(sites)
        secure = getattr(estimator, "secure", False)
        found = stability(
            models[c], sites, n_resamples=n_resamples, random_state=random_state, secure=secure, leave_sites_out=False
        )
        agree = np.nan_to_num(found.mean_halves)  # nobody agrees on an empty cluster
        tried.append(TriedNumber(c, float(agree.min()), float(agree.mean())))
    stable = [one.n_clusters for one in tried if one.weakest >= STABLE]
    best = max(stable, default=1)
    return NumberOfClusters(best, bool(stable), tried, models.get(best))
