"""The methods that a user could take, all with one interface: what each makes of the same sites.

"pooled" ones see all rows in one place, "federated" ones do not, and models of sites "alone" share no meaning. mvlearn
runs in an environment of its own, where it can be installed; its k-means takes two views. "paper" is an algorithm to
the letter (`fedhk.reference`). Of our estimators rounds and bytes are those of their history, preparation included; of
others they are counted: eight bytes for each number that a site and the server must tell each other.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import venv
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

import fedhk
from data import DataSet, balanced_kmeans, balanced_space, scaled_views, site_rows
from fedhk import reference
from fedhk.datasets import split_views
from fedhk.evaluation import baselines

MVLEARN = Path(__file__).parent / ".mvlearn"

MOST_SPECTRAL_ROWS = 1_700  # mvlearn's spectral clustering took five minutes for 2,000 rows of six views

Labels = dict[str, np.ndarray]


@dataclass(frozen=True)
class Found:
    """Labels of every site's rows; rounds, and kilobytes of a site both ways, where rows stay at their sites."""

    labels: Labels
    rounds: float = np.nan
    kilobytes: float = np.nan


class Sites:
    """A data set at its sites."""

    def __init__(self, data: DataSet, seed: int) -> None:
        self.data, self.seed = data, seed
        self.rows = site_rows(data, seed)
        self.views = split_views(data.views, self.rows)
        self.n_clusters = data.n_classes

    @cached_property
    def joint(self) -> Labels:
        """Balanced views side by side, by site."""
        return self.split(balanced_space(self.data))

    def split(self, labels: np.ndarray) -> Labels:
        """What all rows have, by site."""
        return {site: np.asarray(labels)[rows] for site, rows in self.rows.items()}

    def found(self, labels: np.ndarray) -> Found:
        """What a method on pooled rows found."""
        return Found(self.split(labels))


def pooled_kmeans(sites: Sites) -> Found:
    return sites.found(balanced_kmeans(sites.data, sites.seed))


def pooled_heat_kernel(sites: Sites) -> Found:
    model = fedhk.HeatKernelMVC(sites.n_clusters, scaling=sites.data.scaling, random_state=sites.seed)
    return sites.found(model.fit_predict(sites.data.views))


def alone(sites: Sites) -> Found:
    """Every site for itself; clusters of one site have nothing to do with those of another."""
    found = {}
    for site, views in sites.views.items():
        n_clusters = min(sites.n_clusters, len(sites.rows[site]))
        model = fedhk.HeatKernelMVC(n_clusters, scaling=sites.data.scaling, random_state=sites.seed)
        with_rows = [view for view in views if not np.isnan(view).all()]
        found[site] = model.fit_predict(with_rows)
    return Found(found)


def federated(find: Callable[..., baselines.Found]) -> Callable[[Sites], Found]:
    def fit(sites: Sites) -> Found:
        found = find(sites.joint, sites.n_clusters, sites.seed)
        return Found(found.labels, found.rounds, 1e-3 * found.bytes_a_site)

    return fit


def paper(algorithm: Callable[..., reference.Outcome]) -> Callable[[Sites], Found | None]:
    def fit(sites: Sites) -> Found | None:
        """An algorithm as it is printed, on z-scores; the paper has no rule for missing cells."""
        if any(np.isnan(view).any() for view in sites.data.views):
            return None
        scaled = scaled_views(sites.data)
        clients = [[view[rows] for view in scaled] for rows in sites.rows.values()]
        found = algorithm(clients, sites.n_clusters, random_state=sites.seed)
        last, rounds = found.history[-1], len(found.history)
        sent = [*getattr(last, "parts", last.centers), last.view_weights]  # up and down in every round
        told = 2 * sum(array.size for array in sent)
        return Found(dict(zip(sites.rows, found.labels, strict=True)), rounds, 8e-3 * told * rounds)

    return fit


def ours(name: str) -> Callable[[Sites], Found]:
    def fit(sites: Sites) -> Found:
        model = getattr(fedhk, name)(sites.n_clusters, scaling=sites.data.scaling, random_state=sites.seed)
        model.fit(sites.views)
        sent = sum(record["bytes_up"] + record["bytes_down"] for record in model.history_)
        return Found(dict(model.labels_), model.n_iter_, 1e-3 * sent / len(sites.rows))

    return fit


def mvlearn(kind: str) -> Callable[[Sites], Found | None]:
    def fit(sites: Sites) -> Found | None:
        views = sites.data.views
        if any(np.isnan(view).any() for view in views) or (kind == "MultiviewKMeans" and len(views) != 2):
            return None
        if kind != "MultiviewKMeans" and len(sites.data.labels) > MOST_SPECTRAL_ROWS:
            return None
        labels = _in_mvlearn(kind, scaled_views(sites.data), sites.n_clusters, sites.seed)
        return None if labels is None else sites.found(labels)

    return fit


SCRIPT = """
import sys, warnings
warnings.simplefilter("ignore")
import numpy as np
import mvlearn.cluster as methods
file = np.load(sys.argv[1])
views = [file[f"view_{i}"] for i in range(int(file["n_views"]))]
method = getattr(methods, sys.argv[2])(int(file["n_clusters"]), random_state=int(file["seed"]))
np.save(sys.argv[3], np.asarray(method.fit_predict(views)))
"""


def _in_mvlearn(kind: str, views: list[np.ndarray], n_clusters: int, seed: int) -> np.ndarray | None:
    """Run a method of mvlearn in its own environment; None where it does not run."""
    with tempfile.TemporaryDirectory() as folder:
        given, found = Path(folder) / "given.npz", Path(folder) / "found.npy"
        arrays = {f"view_{i}": view for i, view in enumerate(views)}
        np.savez(given, n_views=len(views), n_clusters=n_clusters, seed=seed, **arrays)
        command = [str(MVLEARN / "bin" / "python"), "-c", SCRIPT, str(given), kind, str(found)]
        one_thread = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        done = subprocess.run(command, capture_output=True, check=False, env=one_thread)  # noqa: S603
        return np.load(found) if done.returncode == 0 and found.exists() else None


def mvlearn_is_there() -> bool:
    """Make mvlearn's environment where there is none: its pins are old, so only what it really imports is installed."""
    python = str(MVLEARN / "bin" / "python")
    if not Path(python).exists():
        venv.create(MVLEARN, with_pip=True)
        install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        for words in (
            ["numpy<2.3", "scipy", "scikit-learn<1.6", "pandas", "matplotlib", "joblib"],
            ["--no-deps", "mvlearn", "seaborn"],
        ):
            subprocess.run([*install, *words], check=False)  # noqa: S603
    tried = subprocess.run([python, "-c", "import mvlearn.cluster"], capture_output=True, check=False)  # noqa: S603
    return tried.returncode == 0


METHODS: dict[str, tuple[str, Callable[[Sites], Found | None]]] = {
    "balanced k-means": ("pooled", pooled_kmeans),
    "HeatKernelMVC": ("pooled", pooled_heat_kernel),
    "mvlearn k-means": ("pooled", mvlearn("MultiviewKMeans")),
    "mvlearn spectral": ("pooled", mvlearn("MultiviewSpectralClustering")),
    "each site alone": ("alone", alone),
    "k-FED": ("federated", federated(baselines.k_fed)),
    "federated FCM, m = 2": ("federated", federated(baselines.federated_fcm)),
    "paper, Algorithm 1": ("federated", paper(reference.efkmvc)),
    "paper, Algorithm 2": ("federated", paper(reference.fedhk_parafac2)),
    "paper, Algorithm 3": ("federated", paper(reference.fedhk_tucker)),
    "paper, Algorithm 4": ("federated", paper(reference.fedhk_person)),
    "EFKMVC": ("federated", ours("EFKMVC")),
    "FedHKTucker": ("federated", ours("FedHKTucker")),
    "FedHKParafac2": ("federated", ours("FedHKParafac2")),
    "FedHKPerson": ("federated", ours("FedHKPerson")),
    "FedHKDiffusion": ("federated", ours("FedHKDiffusion")),
}

# The paper's algorithms and the estimators that are their corrected forms.
PAPER = {
    "paper, Algorithm 1": "EFKMVC",
    "paper, Algorithm 2": "FedHKParafac2",
    "paper, Algorithm 3": "FedHKTucker",
    "paper, Algorithm 4": "FedHKPerson",
}
OURS = tuple(method for method in METHODS if hasattr(fedhk, method))
FEDERATED = tuple(method for method, (kind, _) in METHODS.items() if kind == "federated")
