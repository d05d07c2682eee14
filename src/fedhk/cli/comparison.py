"""The demo's data and measurements: one federation, five ways to cluster it, measured on rows that none of them saw."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score
from sklearn.preprocessing import StandardScaler

from fedhk import HeatKernelMVC
from fedhk.cli.algorithms import Outcome, run_algorithm
from fedhk.data.clients import check_clients
from fedhk.data.folders import Federation, SiteData
from fedhk.data.named import named_views
from fedhk.datasets import make_sites
from fedhk.evaluation import measure_rows
from fedhk.metrics import matched_accuracy

# Names in the order of the alphabet, in which folders are read.
SITES = ("athens", "bergen", "cairo", "dublin", "evora", "florence")
WITHOUT = {"bergen": "lab", "evora": "scan"}
WIDTHS = {"ecg": 8, "lab": 6, "scan": 4}
N_CLUSTERS = 4

# The first draw, not the best: docs/cli.md has others.
DATA_SEED = 0

# The law that values are drawn from keeps nearly all within; bounds that were looked up in the rows would tell of them.
PRIVACY = {"epsilon": 2.0, "delta": 1e-5, "bounds": [-8, 8]}

ABOUT = (
    "Made-up patients of six hospitals, in three views. Hospitals differ in size, in how often they see each of four "
    "diseases, and in how they measure; two lack a view."
)
NOTES = (
    "Measured on a fifth of every site's rows, to which no model was fitted, against the diseases, which no model is "
    "told. ARI is 1 where clusters are the diseases and 0 where they are chance. Per site is the mean over sites; over "
    "all rows, clusters must also mean the same everywhere, and those of sites alone do not. Bytes count both "
    "directions; for pooling, the tables as they are. Noise has no seed: the last line differs from run to run, and at "
    "sites of another draw noise can cost far more."
)

POOLED, ALONE, GLOBAL = "pooled k-means", "each site alone", "one model for all"
OWN, PRIVATE = "own models", "own, with noise"

Labels = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class Sites:
    """The demo's sites.

    Parameters
    ----------
    fitted, held : Federation
        Rows that models are fitted to, and rows that are kept to measure them.
    truth : dict of str to array
        The true class of each row that was kept.
    """

    fitted: Federation
    held: Federation
    truth: Labels


@dataclass(frozen=True)
class Measured:
    """One way to cluster the sites: what it says of the rows that were kept, and what it cost."""

    labels: Labels
    seconds: float
    rows_sent: int = 0
    bytes_sent: int = 0
    common_names: bool = True

    def scores(self, truth: Labels) -> dict[str, float | None]:
        """All columns of the table; None where there is nothing to measure."""
        true, found = (np.concatenate([part[site] for site in truth]) for part in (truth, self.labels))
        measures = {"ari": adjusted_rand_score, "accuracy": matched_accuracy}
        together = {n: float(f(true, found)) if self.common_names else None for n, f in measures.items()}
        per_site = float(np.mean([adjusted_rand_score(truth[site], self.labels[site]) for site in truth]))
        costs = {"rows_sent": self.rows_sent, "bytes_sent": self.bytes_sent, "seconds": self.seconds}
        return {"ari_per_site": per_site, **together, **costs}


@dataclass(frozen=True)
class Comparison:
    """What the demo found.

    Parameters
    ----------
    sites : Sites
        The data.
    methods : dict of str to Measured
        By name of the method.
    own, private : Outcome
        The fits with models of their own, without and with noise.
    evaluation : list of dict
        As `fedhk.evaluate` gives it, for the global, the personal and the alone models.
    """

    sites: Sites
    methods: dict[str, Measured]
    own: Outcome
    private: Outcome
    evaluation: list[dict[str, Any]]

    def to_dict(self) -> dict[str, Any]:
        """All measurements."""
        return {
            "about": ABOUT,
            "notes": NOTES,
            "n_clusters": N_CLUSTERS,
            "methods": {name: measured.scores(self.sites.truth) for name, measured in self.methods.items()},
            "sites": {name: self._site(name) for name in self.sites.truth},
        }

    def _site(self, name: str) -> dict[str, Any]:
        site, truth = self.sites.fitted.sites[name], self.sites.truth[name]
        return {
            "rows": site.n_rows,
            "rows_measured": len(truth),
            "missing_views": [view for view, values in site.views.items() if values is None],
            "ari": {
                n: float(adjusted_rand_score(truth, measured.labels[name])) for n, measured in self.methods.items()
            },
        }


def make_federation(n_rows: int = 1250) -> Sites:
    """Six sites of different size and class mix that measure differently, two of which lack a view.

    Parameters
    ----------
    n_rows : int
        Mean number of rows of a site, of which a fifth is kept to measure.
    """
    data = make_sites(len(SITES), n_rows, N_CLUSTERS, WIDTHS.values(), shift=1.2, class_mix=1.5, random_state=DATA_SEED)
    columns: dict[str, tuple[str, ...] | None] = {v: tuple(f"{v}_{j}" for j in range(d)) for v, d in WIDTHS.items()}
    fitted: dict[str, SiteData] = {}
    held: dict[str, SiteData] = {}
    truth: Labels = {}
    assert data.sites is not None  # noqa: S101 - generated by site
    assert data.site_labels is not None  # noqa: S101
    for name, views, classes in zip(SITES, data.sites.values(), data.site_labels.values(), strict=True):
        tables = {v: None if WITHOUT.get(name) == v else t for v, t in zip(WIDTHS, views, strict=True)}
        cut = len(classes) * 4 // 5  # rows come in no order
        ids = np.arange(len(classes))
        for part, rows in ((fitted, slice(cut)), (held, slice(cut, None))):
            part[name] = SiteData(
                name, {v: None if t is None else t[rows] for v, t in tables.items()}, ids[rows], columns
            )
        truth[name] = classes[cut:]
    return Sites(Federation(fitted, columns), Federation(held, columns), truth)


def compare(sites: Sites, seed: int, checkpoint: Path, tell: Callable[[str], None]) -> Comparison:
    """Cluster the sites in all ways.

    Parameters
    ----------
    sites : Sites
        The data.
    seed : int
        Random state of all models; noise has none.
    checkpoint : Path
        Folder where sites write down what they release under noise.
    tell : callable
        Is told what is under way.
    """
    own, own_time = _federated(OWN, "fedhk-person", sites, seed, tell=tell)
    noise = {"privacy": PRIVACY, "secure": can_sum_securely()}
    private, private_time = _federated(PRIVATE, "fedhk-person", sites, seed, tell=tell, checkpoint=checkpoint, **noise)
    common, common_time = _federated(GLOBAL, "e-fkmvc", sites, seed, tell=tell)
    alone, alone_time = _alone(sites, seed, tell)
    kinds = {"global": dict.fromkeys(sites.truth, common.model), "personal": own.site_models, "alone": alone}
    evaluation, labels = _evaluate(sites, common.model, kinds)
    methods = {
        POOLED: _pooled_kmeans(sites, seed),
        ALONE: Measured(labels["alone"], alone_time, common_names=False),
        GLOBAL: Measured(labels["global"], common_time, bytes_sent=_traffic(common)),
        OWN: Measured(labels["personal"], own_time, bytes_sent=_traffic(own)),
        PRIVATE: Measured(_predict(sites, private.site_models), private_time, bytes_sent=_traffic(private)),
    }
    return Comparison(sites, methods, own, private, evaluation)


def can_sum_securely() -> bool:
    """Whether the package that secure sums need is here; without, every site adds the whole noise."""
    return find_spec("cryptography") is not None


def _federated(
    method: str,
    algorithm: str,
    sites: Sites,
    seed: int,
    *,
    tell: Callable[[str], None],
    checkpoint: Path | None = None,
    **parameters: Any,
) -> tuple[Outcome, float]:
    """A fit of all sites, and how long it took."""
    tell(f"{method} ...")
    began = time.perf_counter()
    given = {"n_clusters": N_CLUSTERS, **parameters}
    outcome = run_algorithm(algorithm, sites.fitted, given, seed=seed, checkpoint=checkpoint)
    return outcome, time.perf_counter() - began


def _alone(sites: Sites, seed: int, tell: Callable[[str], None]) -> tuple[dict[str, HeatKernelMVC], float]:
    """A model of its own rows at every site."""
    tell(f"{ALONE} ...")
    began = time.perf_counter()
    models = {
        name: HeatKernelMVC(N_CLUSTERS, random_state=seed).fit(_present(site))
        for name, site in sites.fitted.sites.items()
    }
    return models, time.perf_counter() - began


def _present(site: SiteData) -> dict[str, Any]:
    """The views that a site has."""
    return {view: table for view, table in named_views(site).items() if table is not None}


def _predict(sites: Sites, models: dict[str, Any]) -> Labels:
    """Clusters of the rows that were kept, by the model of each site."""
    return {name: models[name].predict(_present(site)) for name, site in sites.held.sites.items()}


def _evaluate(
    sites: Sites, common: Any, kinds: dict[str, dict[str, Any]]
) -> tuple[list[dict[str, Any]], dict[str, Labels]]:
    """Records as `fedhk.evaluate` gives them, in the units of the common model, and labels by kind and site."""
    records: list[dict[str, Any]] = []
    labels: dict[str, Labels] = {kind: {} for kind in kinds}
    clients = check_clients({name: named_views(site) for name, site in sites.held.sites.items()})
    for name, views in clients.items():
        for kind, models in kinds.items():
            record, labels[kind][name] = measure_rows(common, models[name], views, np.arange(views.n_rows))
            records.append({"site": name, "model": kind, "rows": views.n_rows} | record)
    return records, labels


def _pooled_kmeans(sites: Sites, seed: int) -> Measured:
    """Balanced k-means of all rows: on standardised views, each divided by the square root of its width."""
    began = time.perf_counter()
    pooled, kept = _pool(sites.fitted), _pool(sites.held)
    scalers = {view: StandardScaler().fit(table) for view, table in pooled.items()}

    def scaled(tables: dict[str, NDArray[Any]]) -> NDArray[Any]:
        parts = [scalers[view].transform(table) / np.sqrt(table.shape[1]) for view, table in tables.items()]
        return np.asarray(np.nan_to_num(np.hstack(parts)))  # a missing view is filled in with the mean

    found = KMeans(N_CLUSTERS, n_init=10, random_state=seed).fit(scaled(pooled)).predict(scaled(kept))
    ends = np.cumsum([len(part) for part in sites.truth.values()])[:-1]
    labels = dict(zip(sites.truth, np.split(found, ends), strict=True))
    tables = [t for site in sites.fitted.sites.values() for t in site.views.values() if t is not None]
    n_rows = sum(site.n_rows for site in sites.fitted.sites.values())
    return Measured(labels, time.perf_counter() - began, n_rows, sum(table.nbytes for table in tables))


def _pool(federation: Federation) -> dict[str, NDArray[Any]]:
    """All rows together, with NaN where a site lacks a view."""
    return {
        view: np.vstack(
            [np.full((s.n_rows, d), np.nan) if (t := s.views[view]) is None else t for s in federation.sites.values()]
        )
        for view, d in WIDTHS.items()
    }


def _traffic(outcome: Outcome) -> int:
    return sum(record["bytes_up"] + record["bytes_down"] for record in outcome.history)
