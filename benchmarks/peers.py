"""Every method that a user could take instead, on the same sites.

    python benchmarks/peers.py [seeds] [public]

Sites are the real ones, or ten by Dirichlet(0.5). "pooled" methods see all rows in one place; "federated" ones do not.
ARI over all rows (a cluster must mean the same everywhere), and the mean over sites of the agreement within a site,
which is all that models of sites alone have. mvlearn runs in an environment of its own, where it can be installed; its
k-means takes two views. "paper" is Algorithm 1 to the letter (`fedhk.reference`). `public` leaves the shared data out.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score
from threadpoolctl import threadpool_limits

import fedhk
from data import RESULTS, DataSet, balanced_kmeans, balanced_space, public_sets, seeds, shared_sets
from fedhk import reference
from fedhk.datasets import split_by_group, split_dirichlet, split_views
from fedhk.metrics import matched_accuracy

MVLEARN = Path(__file__).parent / ".mvlearn"

# The reference is readable, not fast: a round looks at every cell for every cluster. mvlearn's spectral clustering is
# cubic in rows.
MOST_REFERENCE_WORK, MOST_SPECTRAL_ROWS = 50_000, 2_500

# Figures of PEERS' authors on the same data, ARI; "-" is not given. Pooled, unless said otherwise.
PUBLISHED = {
    "handwritten": "GMC .85, MLAN .94, BIGMC .94",
    "leaves100": "GMC .50, MLAN .82, BIGMC .88; federated: FCUIF .48, MGCD .65, EvoFMVC .83 (tuned on labels)",
    "msrcv1_5v": "co-reg .43, AMGL .62, SFMC .66",
    "bbcsport": "federated: FedDMVC .52, FCUIF .49, EvoFMVC .52",
}

Labels = dict[str, np.ndarray]


class Sites:
    """A data set at its sites."""

    def __init__(self, data: DataSet, seed: int) -> None:
        self.data, self.seed = data, seed
        own = data.client is not None
        self.rows = split_by_group(data.client) if own else split_dirichlet(data.labels, 10, 0.5, random_state=seed)
        self.views = split_views(data.views, self.rows)
        self.n_clusters = data.n_classes
        joint = balanced_space(data)
        self.joint = {site: np.nan_to_num(joint[rows], nan=0.0) for site, rows in self.rows.items()}

    def split(self, labels: np.ndarray) -> Labels:
        """Labels of all rows, by site."""
        return {site: np.asarray(labels)[rows] for site, rows in self.rows.items()}


def pooled_kmeans(sites: Sites) -> Labels:
    return sites.split(balanced_kmeans(sites.data, sites.seed))


def pooled_heat_kernel(sites: Sites) -> Labels:
    model = fedhk.HeatKernelMVC(sites.n_clusters, scaling=sites.data.scaling, random_state=sites.seed)
    return sites.split(model.fit_predict(sites.data.views))


def alone(sites: Sites) -> Labels:
    """Every site for itself; clusters of one site have nothing to do with those of another."""
    found = {}
    for site, views in sites.views.items():
        n_clusters = min(sites.n_clusters, len(sites.rows[site]))
        model = fedhk.HeatKernelMVC(n_clusters, scaling=sites.data.scaling, random_state=sites.seed)
        with_rows = [view for view in views if not np.isnan(view).all()]
        found[site] = model.fit_predict(with_rows)
    return found


def k_fed(sites: Sites) -> Labels:
    """k-FED (Dennis et al. 2021): k-means at every site, one more on all the centres; rows follow their centre."""
    centers, owners, own = [], [], {}
    for site, joint in sites.joint.items():
        k = min(sites.n_clusters, len(joint))
        found = KMeans(k, n_init=10, random_state=sites.seed).fit(joint)
        own[site] = found.labels_ + len(owners)
        centers.append(found.cluster_centers_)
        owners += [site] * k
    server = KMeans(sites.n_clusters, n_init=10, random_state=sites.seed).fit(np.vstack(centers))
    return {site: server.labels_[labels] for site, labels in own.items()}


def federated_fcm(sites: Sites, fuzzifier: float = 2.0, rounds: int = 100) -> Labels:
    """Federated fuzzy c-means: sums of memberships and of weighted rows, m = 2 as the literature has it."""
    generator = np.random.default_rng(sites.seed)
    joint = np.vstack(list(sites.joint.values()))
    centers = joint[generator.choice(len(joint), sites.n_clusters, replace=False)]
    for _ in range(rounds):
        tops, bottoms = np.zeros_like(centers), np.zeros(len(centers))
        for rows in sites.joint.values():
            weights = _memberships(rows, centers, fuzzifier) ** fuzzifier
            tops += weights.T @ rows
            bottoms += weights.sum(axis=0)
        moved = tops / bottoms[:, None]
        if np.abs(moved - centers).max() < 1e-6:
            break
        centers = moved
    return {site: _memberships(rows, centers, fuzzifier).argmax(axis=1) for site, rows in sites.joint.items()}


def _memberships(rows: np.ndarray, centers: np.ndarray, fuzzifier: float) -> np.ndarray:
    squares = np.maximum(np.square(rows).sum(1)[:, None] - 2 * rows @ centers.T + np.square(centers).sum(1), 1e-300)
    raised = squares ** (-1 / (fuzzifier - 1))
    return raised / raised.sum(axis=1, keepdims=True)


def paper(sites: Sites) -> Labels | None:
    """Algorithm 1 as it is printed, on z-scores."""
    work = sites.n_clusters * sum(view.size for view in sites.data.views)
    if work > MOST_REFERENCE_WORK or any(np.isnan(view).any() for view in sites.data.views):
        return None
    scaled = [
        (view - view.mean(axis=0)) / np.where(view.std(axis=0) > 0, view.std(axis=0), 1.0) for view in sites.data.views
    ]
    clients = [[view[rows] for view in scaled] for rows in sites.rows.values()]
    options = reference.EfkmvcOptions(max_rounds=20)
    try:
        found = reference.efkmvc(clients, sites.n_clusters, options, np.random.default_rng(sites.seed))
    except ZeroDivisionError:  # a view whose cost is 0 has no weight as it is printed
        return None
    return {site: m.memberships.argmax(axis=1) for site, m in zip(sites.rows, found.clients, strict=True)}


def ours(name: str) -> Callable[[Sites], Labels]:
    def fit(sites: Sites) -> Labels:
        model = getattr(fedhk, name)(sites.n_clusters, scaling=sites.data.scaling, random_state=sites.seed)
        return dict(model.fit(sites.views).labels_)

    return fit


def mvlearn(kind: str) -> Callable[[Sites], Labels | None]:
    def fit(sites: Sites) -> Labels | None:
        views = sites.data.views
        if any(np.isnan(view).any() for view in views) or (kind == "MultiviewKMeans" and len(views) != 2):
            return None
        if kind != "MultiviewKMeans" and len(sites.data.labels) > MOST_SPECTRAL_ROWS:
            return None
        labels = _in_mvlearn(kind, views, sites.n_clusters, sites.seed)
        return None if labels is None else sites.split(labels)

    return fit


SCRIPT = """
import sys, warnings
warnings.simplefilter("ignore")
import numpy as np
import mvlearn.cluster as methods
file = np.load(sys.argv[1])
views = [file[f"view_{i}"] for i in range(int(file["n_views"]))]
views = [(v - v.mean(0)) / np.where(v.std(0) > 0, v.std(0), 1) for v in views]
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
        done = subprocess.run(command, capture_output=True, check=False, timeout=600)  # noqa: S603
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


METHODS: dict[str, tuple[str, Callable[[Sites], Labels | None]]] = {
    "balanced k-means": ("pooled", pooled_kmeans),
    "HeatKernelMVC": ("pooled", pooled_heat_kernel),
    "mvlearn k-means": ("pooled", mvlearn("MultiviewKMeans")),
    "mvlearn spectral": ("pooled", mvlearn("MultiviewSpectralClustering")),
    "each site alone": ("alone", alone),
    "k-FED": ("federated", k_fed),
    "federated FCM, m = 2": ("federated", federated_fcm),
    "paper, to the letter": ("federated", paper),
    "EFKMVC": ("federated", ours("EFKMVC")),
    "FedHKTucker": ("federated", ours("FedHKTucker")),
    "FedHKParafac2": ("federated", ours("FedHKParafac2")),
    "FedHKPerson": ("federated", ours("FedHKPerson")),
    "FedHKDiffusion": ("federated", ours("FedHKDiffusion")),
}


def run(data: DataSet, method: str, seed: int) -> dict[str, float] | None:
    """Measures of one method with one seed; None where it does not run."""
    sites = Sites(data, seed)
    began = time.perf_counter()
    with threadpool_limits(1), np.errstate(all="ignore"):
        labels = METHODS[method][1](sites)
    if labels is None:
        return None
    seconds = time.perf_counter() - began
    truth = sites.split(data.labels)
    names = [site for site in truth if len(truth[site]) > 1]
    all_truth, found = (np.concatenate([part[site] for site in truth]) for part in (truth, labels))
    shared = METHODS[method][0] != "alone"
    return {
        "ARI": float(adjusted_rand_score(all_truth, found)) if shared else np.nan,
        "NMI": float(normalized_mutual_info_score(all_truth, found)) if shared else np.nan,
        "ACC": matched_accuracy(all_truth, found) if shared else np.nan,
        "site ARI": float(np.mean([adjusted_rand_score(truth[site], labels[site]) for site in names])),
        "seconds": seconds,
    }


def table(measure: str, sets: list[DataSet], found: dict[tuple[str, str], list[dict[str, float]]]) -> list[str]:
    """One line per method: mean and spread over seeds on each set."""
    head = ["method", "rows", *(data.name for data in sets), "mean"]
    lines = [f"### {measure}", "", "| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for method, (kind, _) in METHODS.items():
        cells, means = [], []
        for data in sets:
            values = [record[measure] for record in found.get((data.name, method), [])]
            means.append(float(np.mean(values)) if values else np.nan)
            cells.append(
                f"{np.mean(values):.3f} ± {np.std(values):.3f}" if values and np.isfinite(values).all() else "-"
            )
        complete = f"{np.mean(means):.3f}" if np.isfinite(means).all() else "-"
        lines.append(f"| {method} | {kind} | " + " | ".join(cells) + f" | {complete} |")
    if measure == "ARI" and any(data.name in PUBLISHED for data in sets):
        lines.append("| *published* | | " + " | ".join(PUBLISHED.get(data.name, "") for data in sets) + " | |")
    return [*lines, ""]


def plot(sets: list[DataSet], found: dict[tuple[str, str], list[dict[str, Any]]], path: Path) -> None:
    """Mean ARI of every method that runs on all sets, with the spread over seeds."""
    import matplotlib.pyplot as plt  # noqa: PLC0415 - only here

    values: dict[str, np.ndarray] = {}
    for method in METHODS:
        per_set = [[record["ARI"] for record in found.get((data.name, method), [])] for data in sets]
        if all(per_set) and np.isfinite(np.concatenate(per_set)).all():
            values[method] = np.array(per_set).mean(axis=0)
    order = sorted(values, key=lambda method: float(values[method].mean()))
    colours = ["#0072b2" if hasattr(fedhk, method) else "#999999" for method in order]
    figure, axes = plt.subplots(figsize=(7, 0.4 * len(order) + 1))
    axes.barh(order, [values[m].mean() for m in order], xerr=[values[m].std() for m in order], color=colours)
    axes.set_xlabel(f"ARI over all rows, mean of {len(sets)} data sets (FedHK in blue)")
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    numbers = [int(word) for word in sys.argv[1:] if word.isdigit()]
    chosen = seeds(numbers[0] if numbers else 3)
    sets = ([] if "public" in sys.argv[1:] else shared_sets()) + public_sets()
    methods = [m for m in METHODS if not m.startswith("mvlearn") or mvlearn_is_there()]
    methods = [m for m in methods if hasattr(fedhk, m) or not m.startswith(("EFK", "FedHK"))]
    jobs = [(data, method, seed) for data in sets for method in methods for seed in chosen]
    results = Parallel(n_jobs=-1, return_as="generator")(delayed(run)(*job) for job in jobs)
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for (data, method, seed), result in zip(jobs, results, strict=True):
        print(f"{data.name}: {method}, seed {seed}", file=sys.stderr, flush=True)
        if result is not None:
            found.setdefault((data.name, method), []).append(result)
    text = [
        f"{len(chosen)} seeds; mean and spread over them. `python benchmarks/{' '.join(sys.argv).rpartition('/')[2]}`",
        "",
    ]
    for measure in ("ARI", "NMI", "ACC", "site ARI", "seconds"):
        text += table(measure, sets, found)
    report = "\n".join(text)
    print(report)
    name = "peers-public" if "public" in sys.argv[1:] else "peers"
    (RESULTS / f"{name}.md").write_text(report)
    plot(sets, found, RESULTS / f"{name}.svg")


if __name__ == "__main__":
    main()
