"""Five ways to cluster the same sites, measured on rows that none of them saw."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score
from sklearn.preprocessing import StandardScaler

from fedhk._records import Record
from fedhk.data.clients import check_clients
from fedhk.data.dataset import MultiViewData
from fedhk.data.named import NamedTable
from fedhk.estimators.efkmvc import EFKMVC
from fedhk.estimators.heat_kernel_mvc import HeatKernelMVC
from fedhk.estimators.person import FedHKPerson
from fedhk.evaluation.attack_sites import count_rows, pool_rows
from fedhk.evaluation.scores import measure_rows
from fedhk.metrics import matched_accuracy

POOLED, ALONE, GLOBAL = "pooled k-means", "each site alone", "one model for all"
OWN, PRIVATE = "own models", "own, with noise"

Labels = dict[str, NDArray[Any]]
SiteTables = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Measured:
    """One way to cluster the sites: the clusters of the held-out rows, and what finding them cost."""

    labels: Labels
    seconds: float
    rows_sent: int = 0
    bytes_sent: int = 0
    common_names: bool = True

    def score(self, truth: Labels) -> dict[str, float | None]:
        """Compare the clusters with the true classes; None where clusters of sites have no names in common."""
        true, found = (np.concatenate([part[site] for site in truth]) for part in (truth, self.labels))
        measures = {"ari": adjusted_rand_score, "accuracy": matched_accuracy}
        together = {n: float(f(true, found)) if self.common_names else None for n, f in measures.items()}
        costs = {"rows_sent": self.rows_sent, "bytes_sent": self.bytes_sent, "seconds": self.seconds}
        return {"ari_per_site": float(np.mean(list(self.score_sites(truth).values()))), **together, **costs}

    def score_sites(self, truth: Labels) -> dict[str, float]:
        """The adjusted Rand index at each site."""
        return {site: float(adjusted_rand_score(truth[site], self.labels[site])) for site in truth}


@dataclass(frozen=True)
class HeldOut:
    """Rows to fit and rows to measure.

    Parameters
    ----------
    train, test : dict of str to dict of str to table or None
        By site and view, as estimators take them; None is a view that the site lacks.
    truth : dict of str to array
        The true class of each row of `test`, by site.
    """

    train: SiteTables
    test: SiteTables
    truth: Labels


@dataclass(frozen=True)
class Comparison:
    """What `compare_methods` found.

    Parameters
    ----------
    rows : HeldOut
        The data.
    methods : dict of str to Measured
        By name of the method.
    own, private : FedHKPerson
        The fits with models of their own, without and with noise.
    evaluation : list of dict
        As `fedhk.evaluate` gives it, for the global, the personal and the alone models.
    """

    rows: HeldOut
    methods: dict[str, Measured]
    own: FedHKPerson
    private: FedHKPerson
    evaluation: list[Record]


def hold_out_rows(data: MultiViewData) -> HeldOut:
    """Hold out the last fifth of the rows of every site, which must come in no order."""
    if data.sites is None or data.site_labels is None:
        raise ValueError(f"{data!r} has no sites; make some with split_views.")
    columns = {
        name: tuple(f"{name}_{j}" for j in range(view.shape[1]))
        for name, view in zip(data.view_names, data.views, strict=True)
    }
    train: SiteTables = {}
    test: SiteTables = {}
    truth: Labels = {}
    for site, views in data.sites.items():
        classes = data.site_labels[site]
        cut = len(classes) * 4 // 5
        truth[site] = classes[cut:]
        for part, rows in ((train, slice(cut)), (test, slice(cut, None))):
            part[site] = {
                name: None if view is None else NamedTable(view[rows], columns[name])
                for name, view in zip(columns, views, strict=True)
            }
    return HeldOut(train, test, truth)


def compare_methods(
    rows: HeldOut,
    *,
    n_clusters: int,
    random_state: int,
    noise: dict[str, Any],
    report: Callable[[str], None] = lambda _: None,
) -> Comparison:
    """Cluster sites by pooled k-means, each alone, with one model for all, and with own models without and with noise.

    Parameters
    ----------
    rows : HeldOut
        The data.
    n_clusters : int
        Number of clusters.
    random_state : int
        Seed of all models; noise has none.
    noise : dict
        Parameters of the run with noise: `privacy`, and `secure` and `checkpoint` where they are wanted.
    report : callable
        Called with a line of text when a fit begins.
    """
    shared: dict[str, Any] = {"n_clusters": n_clusters, "random_state": random_state}
    train, test = rows.train, rows.test

    def fit(name: str, fit_models: Callable[[], Any]) -> tuple[Any, float]:
        report(f"{name} ...")
        began = time.perf_counter()
        return fit_models(), time.perf_counter() - began

    own, own_time = fit(OWN, lambda: FedHKPerson(**shared).fit(train))
    private, private_time = fit(PRIVATE, lambda: FedHKPerson(**shared, **noise).fit(train))
    common, common_time = fit(GLOBAL, lambda: EFKMVC(**shared).fit(train))
    alone, alone_time = fit(ALONE, lambda: {s: HeatKernelMVC(**shared).fit(_present(t)) for s, t in train.items()})
    kinds = {"global": dict.fromkeys(test, common), "personal": own.client_models_, "alone": alone}
    evaluation, labels = _evaluate(test, common, kinds)
    noisy_labels = {site: private.client_models_[site].predict(_present(tables)) for site, tables in test.items()}
    methods = {
        POOLED: _run_pooled_kmeans(train, test, n_clusters, random_state),
        ALONE: Measured(labels["alone"], alone_time, common_names=False),
        GLOBAL: Measured(labels["global"], common_time, bytes_sent=_count_bytes(common)),
        OWN: Measured(labels["personal"], own_time, bytes_sent=_count_bytes(own)),
        PRIVATE: Measured(noisy_labels, private_time, bytes_sent=_count_bytes(private)),
    }
    return Comparison(rows, methods, own, private, evaluation)


def _present(tables: Mapping[str, Any]) -> dict[str, Any]:
    """The views that a site has."""
    return {view: table for view, table in tables.items() if table is not None}


def _evaluate(
    test: SiteTables, common: Any, kinds: dict[str, dict[str, Any]]
) -> tuple[list[Record], dict[str, Labels]]:
    """Records as `fedhk.evaluate` gives them, in the units of the common model, and labels by kind and site."""
    records: list[Record] = []
    labels: dict[str, Labels] = {kind: {} for kind in kinds}
    for site, views in check_clients(test).items():
        for kind, models in kinds.items():
            record, labels[kind][site] = measure_rows(common, models[site], views, np.arange(views.n_rows))
            records.append({"site": site, "model": kind, "rows": views.n_rows} | record)
    return records, labels


def _run_pooled_kmeans(train: SiteTables, test: SiteTables, n_clusters: int, random_state: int) -> Measured:
    """Balanced k-means of all rows: on standardised views, each divided by the square root of its width."""
    began = time.perf_counter()
    pooled, held = ([table.values for table in pool_rows(sites).values() if table] for sites in (train, test))
    scalers = [StandardScaler().fit(table) for table in pooled]

    def scale(tables: list[NDArray[Any]]) -> NDArray[Any]:
        parts = [s.transform(table) / np.sqrt(table.shape[1]) for s, table in zip(scalers, tables, strict=True)]
        return np.asarray(np.nan_to_num(np.hstack(parts)))  # a missing view is filled in with the mean

    model = KMeans(n_clusters, n_init=10, random_state=random_state).fit(scale(pooled))
    ends = np.cumsum([count_rows(tables) for tables in test.values()])[:-1]
    labels = dict(zip(test, np.split(model.predict(scale(held)), ends), strict=True))
    n_bytes = sum(table.values.nbytes for tables in train.values() for table in tables.values() if table is not None)
    return Measured(labels, time.perf_counter() - began, sum(map(count_rows, train.values())), n_bytes)


def _count_bytes(model: Any) -> int:
    """Bytes of a run, in both directions."""
    return sum(record["bytes_up"] + record["bytes_down"] for record in model.history_)
