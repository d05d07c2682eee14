"""What clusters are worth at a given privacy budget, against diffprivlib's k-means on pooled rows.

    python benchmarks/privacy.py

Generated two-view data (10 features, 3 clusters, 10 sites of equal size), and the digits that scikit-learn ships. FedHK
runs with one noise on the secure sum and with noise at every site; bounds are the range of each view, rounded outwards,
and neighbouring data differ by one row that is another ("replace"). diffprivlib gets the same rows in one place, with
the same bounds; it runs in an environment of its own, made in `benchmarks/.diffprivlib` on first use, because it needs
an older scikit-learn. Where that cannot be made, its column is empty.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from joblib import Parallel, delayed
from sklearn.metrics import adjusted_rand_score
from threadpoolctl import threadpool_limits

from data import RESULTS, seeds
from fedhk import EFKMVC
from fedhk.datasets import load_multiview_digits, make_sites, split_even, split_views
from fedhk.privacy import DifferentialPrivacy
from plots import save
from tables import spread, table

HERE = Path(__file__).parent
PEER = HERE / ".diffprivlib"
EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0)
DELTA = 1e-5
SETS = {
    "clusters far apart, 1,500 rows": (1500, 8.0),
    "clusters far apart, 15,000 rows": (15000, 8.0),
    "clusters that overlap, 1,500 rows": (1500, 5.0),
    "clusters that overlap, 15,000 rows": (15000, 5.0),
    "digits, 1,797 rows, 10 clusters": None,
}

PEER_SCRIPT = """
import json, sys, warnings
import numpy as np
from diffprivlib.models import KMeans
from sklearn.metrics import adjusted_rand_score
warnings.simplefilter("ignore")
data, found = np.load(sys.argv[1]), []
for epsilon in json.loads(sys.argv[2]):
    model = KMeans(int(data["c"]), epsilon=epsilon, bounds=tuple(data["bounds"]), random_state=int(data["seed"]))
    found.append(adjusted_rand_score(data["labels"], model.fit(data["rows"]).labels_))
print(json.dumps(found))
"""


def load(name: str, seed: int) -> tuple[dict[str, Any], dict[str, Any], list[tuple[float, float]], int]:
    """Sites, their classes, the bounds of each view and the number of classes."""
    if SETS[name] is None:
        digits = load_multiview_digits()
        split = split_even(len(digits.labels), 10, random_state=seed)
        sites = split_views(digits.views, split)
        labels = {site: digits.labels[rows] for site, rows in split.items()}
        views, n_clusters = digits.views, 10
    else:
        n_rows, separation = SETS[name]
        data = make_sites(
            10,
            n_rows // 10,
            n_clusters=3,
            n_features=(5, 5),
            shift=0,
            scale=0,
            class_mix=None,
            size_spread=0,
            separation=separation,
            random_state=seed,
        )
        sites, labels, views, n_clusters = data.sites, data.site_labels, data.views, 3
    return sites, labels, [(float(np.floor(v.min())), float(np.ceil(v.max()))) for v in views], n_clusters


def agreement(model: EFKMVC, labels: dict[str, Any]) -> float:
    found = np.concatenate([model.labels_[site] for site in labels])
    return float(adjusted_rand_score(np.concatenate(list(labels.values())), found))


def run(name: str, seed: int) -> dict[str, list[float]]:
    """ARI per method: without noise, and at each epsilon."""
    sites, labels, bounds, n_clusters = load(name, seed)
    result: dict[str, list[float]] = {}
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that noise drowns the centres is what is measured here
        result["without noise"] = [agreement(EFKMVC(n_clusters, random_state=seed).fit(sites), labels)]
        for label, secure in (("FedHK, noise on the sum", True), ("FedHK, noise at each site", False)):
            result[label] = []
            for epsilon in EPSILONS:
                privacy = DifferentialPrivacy(epsilon, DELTA, bounds)
                model = EFKMVC(n_clusters, secure=secure, privacy=privacy, random_state=seed).fit(sites)
                result[label].append(agreement(model, labels))
    result["diffprivlib, pooled"] = peer(sites, labels, bounds, n_clusters, seed)
    return result


def peer(
    sites: dict[str, Any], labels: dict[str, Any], bounds: list[tuple[float, float]], n_clusters: int, seed: int
) -> list[float]:
    """ARI of diffprivlib's KMeans on all rows in one place."""
    python = PEER / "bin" / "python"
    if not python.exists():
        return [float("nan")] * len(EPSILONS)
    rows = np.vstack([np.hstack(views) for views in sites.values()])
    widths = [view.shape[1] for view in next(iter(sites.values()))]
    ends = np.array([np.repeat([pair[end] for pair in bounds], widths) for end in (0, 1)])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.npz"
        truth = np.concatenate(list(labels.values()))
        np.savez(path, rows=rows, labels=truth, bounds=ends, c=n_clusters, seed=seed)
        command = [str(python), "-c", PEER_SCRIPT, str(path), json.dumps(EPSILONS)]
        return list(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))  # noqa: S603


def make_peer() -> None:
    """The environment of diffprivlib, if it can be made."""
    if (PEER / "bin" / "python").exists():
        return
    subprocess.run([sys.executable, "-m", "venv", str(PEER)], check=True)  # noqa: S603
    packages = ["diffprivlib==0.6.6", "scikit-learn<1.6", "numpy<2.3"]
    done = subprocess.run([str(PEER / "bin" / "pip"), "install", "--quiet", *packages], check=False)  # noqa: S603
    if done.returncode:
        print("diffprivlib could not be installed; its column stays empty.")
        (PEER / "bin" / "python").unlink()


def tables(found: dict[str, list[dict[str, list[float]]]]) -> list[str]:
    """Mean and spread over seeds."""
    lines = []
    for name, results in found.items():
        plain = spread([result["without noise"][0] for result in results])
        rows = []
        for method in [method for method in results[0] if method != "without noise"]:
            values = np.array([result[method] for result in results])
            rows.append((method, *(spread(column) for column in values.T)))
        head = ["ARI at epsilon", *(f"{epsilon:g}" for epsilon in EPSILONS)]
        lines += table(f"{name} (without noise {plain})", head, rows)
    return lines


def plot(found: dict[str, list[dict[str, list[float]]]], path: Path) -> None:
    """ARI against epsilon, one panel per data set."""
    figure, panels = plt.subplots(1, len(found), figsize=(4 * len(found), 3.4), sharey=True)
    for panel, (name, results) in zip(panels, found.items(), strict=True):
        panel.axhline(np.mean([r["without noise"][0] for r in results]), color="0.6", linestyle=":", label="no noise")
        for method in [method for method in results[0] if method != "without noise"]:
            values = np.array([result[method] for result in results])
            panel.errorbar(EPSILONS, values.mean(0), values.std(0), marker="o", capsize=2, label=method)
        panel.set(xscale="log", xticks=EPSILONS, xticklabels=[f"{e:g}" for e in EPSILONS], xlabel="epsilon", title=name)
        panel.minorticks_off()
        panel.title.set_fontsize(9)
    panels[0].set(ylabel="agreement with the classes (ARI)", ylim=(-0.05, 1.05))
    panels[0].legend(fontsize=7)
    save(figure, path)


def main() -> None:
    make_peer()
    chosen = seeds(int(sys.argv[1]) if len(sys.argv) > 1 else 10)
    found = {name: Parallel(n_jobs=-1)(delayed(run)(name, seed) for seed in chosen) for name in SETS}
    report = "\n".join(tables(found))
    print(report)
    (RESULTS / "privacy.md").write_text(report)
    plot(found, RESULTS / "privacy.svg")


if __name__ == "__main__":
    main()
