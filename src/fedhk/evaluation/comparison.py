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
from fedhk.evaluation.attack_sites import count_rows, pool_rows, take_rows
from fedhk.evaluation.scores import measure_models
from fedhk.metrics import matched_accuracy

POOLED, ALONE, GLOBAL = "pooled k-means", "each site alone", "one model for all"
OWN, PRIVATE = "own models", "own, with noise"

Labels = dict[str, NDArray[Any]]
SiteTables = dict[str, Mapping[str, Any]]


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
        """Compute the adjusted Rand index at each site."""
        return {site: float(adjusted_rand_score(truth[site], self.labels[site])) for site in truth}


@dataclass(frozen=True)
class HeldOut:
    """Rows to fit (`train`) and rows to measure (`test`), by site and view, and the true classes of the latter."""

    train: SiteTables
    test: SiteTables
    truth: Labels


@dataclass(frozen=True)
class Comparison:
    """What `compare_methods` found."""

    rows: HeldOut
    methods: dict[str, Measured]
    # the fits with models of their own, without and with noise
    own: FedHKPerson
    private: FedHKPerson
    # as `fedhk.evaluate` gives it, for the global, the personal and the alone models
    evaluation: list[Record]


def hold_out_rows(data: MultiViewData) -> HeldOut:
    """Hold out the last fifth of the rows of every site, which must come in no order."""
    if data.sites is None or data.site_labels is None:
        raise ValueError(f"{data!r} has no sites; make some with split_views.")
    rows = HeldOut({}, {}, {})
    for site, views in data.sites.items():
        tables = {
            name: None if view is None else NamedTable(view, tuple(f"{name}_{j}" for j in range(view.shape[1])))
            for name, view in zip(data.view_names, views, strict=True)
        }
        classes = data.site_labels[site]
        cut = len(classes) * 4 // 5
        rows.train[site], rows.test[site] = take_rows(tables, slice(cut)), take_rows(tables, slice(cut, None))
        rows.truth[site] = classes[cut:]
    return rows


def compare_methods(
    rows: HeldOut,
    *,
    n_clusters: int,
    random_state: int,
    noise: dict[str, Any],
    report: Callable[[str], None] = lambda _: None,
) -> Comparison:
    """Cluster sites by pooled k-means, each alone, with one model for all, and with own models without and with noise.

    `noise` has the parameters of the run with noise: `privacy`, and `secure` and `checkpoint` where they are wanted.
    `random_state` is the seed of all models; noise has none. `report` gets a line of text when a fit begins.
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
    models = {s: {"global": common, "personal": own.client_models_[s], "alone": alone[s]} for s in test}
    every_row = {site: np.arange(count_rows(tables)) for site, tables in test.items()}
    evaluation, labels = measure_models(common, models, check_clients(test), every_row)
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
    """Return the views that a site has."""
    return {view: table for view, table in tables.items() if table is not None}


def _run_pooled_kmeans(train: SiteTables, test: SiteTables, n_clusters: int, random_state: int) -> Measured:
    """Run balanced k-means on all rows: on standardised views, each divided by the square root of its width."""
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
    """Count the bytes of a run, in both directions."""
    return sum(record["bytes_up"] + record["bytes_down"] for record in model.history_)
