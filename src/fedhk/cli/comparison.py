"""The demo's data and measurements: one federation, four ways to cluster it, over several seeds."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score
from sklearn.metrics.cluster import contingency_matrix
from sklearn.preprocessing import StandardScaler

from fedhk import HeatKernelMVC
from fedhk.cli.algorithms import Outcome, run_algorithm
from fedhk.data.folders import Federation, SiteData
from fedhk.datasets import load_multiview_digits, split_dirichlet
from fedhk.metrics import matched_accuracy

# Names in the order of the alphabet, so that they stay in the order of the split.
SITES = ("athens", "bergen", "cairo", "dublin", "evora", "florence")
WITHOUT = {"bergen": "gradients", "evora": "pixels"}
SPLIT_SEED = 0

ABOUT = (
    "Handwritten digits of scikit-learn in four views, at six sites that differ in size and in which "
    "digits they see (Dirichlet 0.5); two of them lack a view. Labels are only used to measure."
)
NOTES = (
    "Accuracy, NMI and ARI are of all rows together; sites alone name their clusters as they like, so they have none; "
    "they look for 10 clusters too, though some see fewer digits. "
    "ARI per site is the mean over sites. Federated sites send sums over their rows and, once, means of groups of at "
    "least two rows. Bytes count both directions; for pooling, the tables as they are. k-means has missing views "
    "filled in with the mean."
)

Labels = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class Sites:
    """The demo's sites and the true class of each row."""

    federation: Federation
    truth: Labels
    n_clusters: int

    @property
    def n_rows(self) -> int:
        """Rows of all sites."""
        return sum(len(labels) for labels in self.truth.values())


@dataclass
class Measured:
    """One method in one run; None where there is nothing to measure."""

    labels: Labels
    rows_sent: int
    bytes_sent: int
    seconds: float
    common_names: bool = True

    def scores(self, truth: Labels) -> dict[str, float | None]:
        """All columns of the table."""
        true, found = (np.concatenate([part[site] for site in truth]) for part in (truth, self.labels))
        measures = {
            "accuracy": matched_accuracy,
            "nmi": normalized_mutual_info_score,
            "ari": adjusted_rand_score,
        }
        together = {n: float(f(true, found)) if self.common_names else None for n, f in measures.items()}
        per_site = float(np.mean([adjusted_rand_score(truth[site], self.labels[site]) for site in truth]))
        costs = {"rows_sent": self.rows_sent, "bytes_sent": self.bytes_sent, "seconds": self.seconds}
        return {**together, "ari_per_site": per_site, **costs}


@dataclass
class Comparison:
    """What the demo found."""

    sites: Sites
    runs: list[dict[str, Measured]]
    outcome: Outcome

    def to_dict(self) -> dict[str, Any]:
        """All measurements: means over the runs."""
        truth = self.sites.truth
        methods = {}
        for method in self.runs[0]:
            scores = [run[method].scores(truth) for run in self.runs]
            methods[method] = {name: _mean([score[name] for score in scores]) for name in scores[0]}
            methods[method]["rows_sent"] = self.runs[0][method].rows_sent
        return {
            "about": ABOUT,
            "notes": NOTES,
            "runs": len(self.runs),
            "methods": methods,
            "sites": {site: self._site(site) for site in truth},
        }

    def _site(self, site: str) -> dict[str, Any]:
        truth = self.sites.truth[site]
        federated, alone = ([run[method].labels[site] for run in self.runs] for method in (FEDERATED, ALONE))
        views = self.sites.federation.sites[site].views
        accuracies = [_accuracy_at(self.sites.truth, run[FEDERATED].labels, site) for run in self.runs]
        return {
            "rows": len(truth),
            "classes": len(np.unique(truth)),
            "missing_views": [view for view, values in views.items() if values is None],
            "accuracy": _mean(accuracies),
            "ari": _mean([adjusted_rand_score(truth, labels) for labels in federated]),
            "ari_alone": _mean([adjusted_rand_score(truth, labels) for labels in alone]),
        }


def make_federation() -> Sites:
    """Spread the digits over six sites of different sizes and class mix, two of which lack a view."""
    data = load_multiview_digits()
    split = split_dirichlet(data.labels, len(SITES), 0.5, min_rows=50, random_state=SPLIT_SEED)
    rows = dict(zip(SITES, split.values(), strict=True))
    tables = dict(sorted(zip(data.view_names, data.views, strict=True)))
    columns: dict[str, tuple[str, ...] | None] = {
        view: tuple(f"{view}_{j}" for j in range(values.shape[1])) for view, values in tables.items()
    }
    sites = {
        site: SiteData(
            site, {v: None if WITHOUT.get(site) == v else table[own] for v, table in tables.items()}, own, columns
        )
        for site, own in rows.items()
    }
    return Sites(Federation(sites, columns), {site: data.labels[own] for site, own in rows.items()}, 10)


def compare(sites: Sites, seed: int, n_runs: int, tell: Callable[[str], None]) -> Comparison:
    """Cluster the sites in all ways, with seeds from `seed` on; the outcome of the first federated run is kept."""
    runs, outcomes = [], []
    for run in range(n_runs):
        tell(f"run {run + 1} of {n_runs} ...")
        results = {name: method(sites, seed + run) for name, method in METHODS.items()}
        began = time.perf_counter()
        outcome = run_algorithm("e-fkmvc", sites.federation, {"n_clusters": sites.n_clusters}, seed=seed + run)
        took = time.perf_counter() - began
        traffic = sum(record["bytes_up"] + record["bytes_down"] for record in outcome.history)
        runs.append(results | {FEDERATED: Measured(outcome.global_labels, 0, traffic, took)})
        outcomes.append(outcome)
    return Comparison(sites, runs, outcomes[0])


def _pool(sites: Sites) -> dict[str, NDArray[Any]]:
    """The rows of all sites in one place; NaN where a site lacks a view."""
    parts = sites.federation.sites.values()
    widths = {view: len(names or ()) for view, names in sites.federation.columns.items()}
    return {
        view: np.vstack([np.full((s.n_rows, d), np.nan) if (t := s.views[view]) is None else t for s in parts])
        for view, d in widths.items()
    }


def _pooled(sites: Sites, fit: Callable[[dict[str, NDArray[Any]]], NDArray[Any]]) -> Measured:
    views = _pool(sites)
    began = time.perf_counter()
    labels = fit(views)
    took = time.perf_counter() - began
    ends = np.cumsum([len(part) for part in sites.truth.values()])[:-1]
    sent = sum(t.nbytes for s in sites.federation.sites.values() for t in s.views.values() if t is not None)
    return Measured(dict(zip(sites.truth, np.split(labels, ends), strict=True)), sites.n_rows, sent, took)


def _pooled_heat_kernel(sites: Sites, seed: int) -> Measured:
    return _pooled(sites, lambda views: HeatKernelMVC(sites.n_clusters, random_state=seed).fit_predict(views))


def _pooled_kmeans(sites: Sites, seed: int) -> Measured:
    """Balanced k-means: on standardised views, each divided by the square root of its width."""

    def fit(views: dict[str, NDArray[Any]]) -> NDArray[Any]:
        scaled = [StandardScaler().fit_transform(v) / np.sqrt(v.shape[1]) for v in views.values()]
        joint = np.nan_to_num(np.hstack(scaled))
        return np.asarray(KMeans(sites.n_clusters, n_init=10, random_state=seed).fit_predict(joint))

    return _pooled(sites, fit)


def _alone(sites: Sites, seed: int) -> Measured:
    """A model of its own at every site."""
    began = time.perf_counter()
    labels: Labels = {}
    for name, site in sites.federation.sites.items():
        views = {view: values for view, values in site.views.items() if values is not None}
        labels[name] = HeatKernelMVC(sites.n_clusters, random_state=seed).fit_predict(views)
    return Measured(labels, 0, 0, time.perf_counter() - began, common_names=False)


FEDERATED, ALONE = "federated e-fkmvc", "sites alone"
METHODS = {
    "pooled k-means": _pooled_kmeans,
    "pooled heat-kernel": _pooled_heat_kernel,
    ALONE: _alone,
}


def _mean(values: list[Any]) -> float | None:
    return None if values[0] is None else float(np.mean(values))


def _accuracy_at(truth: Labels, labels: Labels, site: str) -> float:
    """Share of a site's rows whose cluster is their class, where clusters are named once for all sites."""
    true, found = (np.concatenate([part[name] for name in truth]) for part in (truth, labels))
    classes, clusters = np.unique(true), np.unique(found)
    chosen = linear_sum_assignment(contingency_matrix(true, found), maximize=True)
    name_of = dict(zip(clusters[chosen[1]].tolist(), classes[chosen[0]].tolist(), strict=True))
    return float(
        np.mean([name_of.get(k) == t for k, t in zip(labels[site].tolist(), truth[site].tolist(), strict=True)])
    )
