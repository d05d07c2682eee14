"""What clusters are worth at a given privacy budget, against diffprivlib's k-means on pooled rows.

    python benchmarks/privacy.py
    python benchmarks/privacy.py 3 --only mixture squares digits masks sites categories start

The first line is the part "agreement"; the others are run where they are named, with so many seeds.

**agreement.** Generated two-view data (10 features, 3 clusters, 10 sites of equal size), and the digits that
scikit-learn ships. FedHK runs with one noise on the secure sum and with noise at every site; bounds are the range of
each view, rounded outwards, and neighbouring data differ by one row that is another ("replace"). diffprivlib gets the
same rows in one place, with the same bounds; it runs in an environment of its own, made in `benchmarks/.diffprivlib` on
first use, because it needs an older scikit-learn. Where that cannot be made, its column is empty.

**mixture.** The experiment of FedDP-KMeans (ICML 2025): ten Gaussians with means uniform in [0, 1]^100 and covariance
0.5 I, 100,000 rows, delta 1e-6, 20 sites under masks: k-means cost over that of the best KMeans without noise.

**squares.** Cost per row on sets of the kind that FastLloyd (USENIX Security 2025) reports: those that scikit-learn
ships, and look-alikes of the others; "add-remove", 3 sites under masks. FastLloyd is re-implemented from its
description and runs on the same rows with the same epsilon and delta. Sets of few rows, whose runs differ most, have
four times as many seeds.

**digits.** Digits as one view of 64 pixels and as four views, 10 sites under masks.

**masks.** Agreement with masks and without noise, over that of the plain run, on the shared sets, with all defaults.

**sites.** Privacy of whole sites: the same mixture at 2,000 sites of 50 rows, epsilon 1, three rounds. Masks are left
out here, and noise is shared as under masks: they cancel to the bit, and 2,000 sites have two million pairs.

**categories.** Three generated clusters in six numbers and one category, 900 rows at 3 sites under masks, epsilon 6, by
what the units of levels are multiplied. Ranges of numbers are so many standard deviations wide. The category has the
same shares in all clusters ("none"), shares drawn for each ("some"), or nearly one level for each ("strong").

**start.** Generated federations whose sites measure differently and lack views, with little noise: 3 to 6 clusters, 4
to 8 sites, 3,000 to 10,000 rows, epsilon .7 to 4. Only those in which a run without noise finds clusters (ARI .75 or
more), so that what is missing is lost by the start.
"""

from __future__ import annotations

import argparse

if __name__ == "__main__":  # before imports that take seconds
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("seeds", type=int, nargs="?", default=10, help="how many")
    parts = ["agreement", "mixture", "squares", "digits", "masks", "sites", "categories", "start"]
    parser.add_argument("--only", nargs="+", choices=parts, default=["agreement"])
    given = parser.parse_args()

import json
import subprocess
import sys
import tempfile
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import matplotlib.pyplot as plt
import numpy as np
import polars as pl
from joblib import Parallel, delayed
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits, load_iris
from sklearn.metrics import adjusted_rand_score
from threadpoolctl import threadpool_limits

from data import RESULTS, public_sets, seeds, shared_sets, site_rows
from fedhk import EFKMVC, FedHKDiffusion, FedHKParafac2, FedHKPerson, FedHKTucker
from fedhk.datasets import load_multiview_digits, make_sites, split_even, split_views
from fedhk.federation.phases import scales
from fedhk.federation.sealed import guard as sealed_guard
from fedhk.federation.sealed import phase as sealed_phase
from fedhk.federation.sealed.masks import MaskedSite, OpenSums
from fedhk.federation.sealed.messages import Numbers
from fedhk.privacy import DifferentialPrivacy
from fedhk.privacy.accounting import noise_multiplier
from fedhk.privacy.mechanism import SecureSummation
from fedhk.privacy.secure_sum import default_threshold
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


def measure_agreement(chosen: range) -> list[str]:
    make_peer()
    found = {name: Parallel(n_jobs=-1)(delayed(run)(name, seed) for seed in chosen) for name in SETS}
    plot(found, RESULTS / "privacy.svg")
    return tables(found)


# ----------------------------------------------------------------------------------------------------- costs of k-means


def cost_of(rows: Any, centers: Any) -> float:
    """Sum of squared distances to the nearest centre."""
    return sum(
        float(np.maximum(np.square(x).sum(1)[:, None] - 2 * x @ centers.T + np.square(centers).sum(1), 0).min(1).sum())
        for x in np.array_split(rows, max(1, len(rows) // 10000))
    )


def best_cost(rows: Any, n_clusters: int, start: Any, seed: int) -> float:
    """The cost of KMeans without noise, from the true means where they are known."""
    init = "k-means++" if start is None else start
    model = KMeans(n_clusters, init=init, n_init=20 if start is None else 1, random_state=seed).fit(rows)
    return cost_of(rows, model.cluster_centers_)


def fit_quietly(n_clusters: int, sites: dict[str, Any], **options: Any) -> EFKMVC:
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that noise drowns the centres is what is measured here
        return EFKMVC(n_clusters, secure=True, **options).fit(sites)


def cut_in_sites(rows: Any, count: int) -> dict[str, Any]:
    return {f"site-{site:02d}": [rows[site::count]] for site in range(count)}


MIXTURE_EPSILONS = (None, 0.2, 0.4, 0.6, 1.0, 2.0)
FEDDP = ("-", 1.033, 1.007, 1.003, 1.001, 1.0004)  # re-implemented from its description; add-remove, 300 public rows


def make_mixture(seed: int, n_rows: int = 100_000) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    means = rng.uniform(size=(10, 100))
    return means[rng.integers(10, size=n_rows)] + rng.normal(size=(n_rows, 100)) * np.sqrt(0.5), means


def measure_mixture(chosen: range) -> list[str]:
    found: dict[str, list[list[float]]] = {"replace": [], "add-remove": []}
    for seed in chosen:
        rows, means = make_mixture(seed)
        best, sites = best_cost(rows, 10, means, seed), cut_in_sites(rows, 20)
        bounds = float(np.floor(rows.min())), float(np.ceil(rows.max()))
        for neighbours, lines in found.items():
            ratios = []
            for epsilon in MIXTURE_EPSILONS:
                budget = None if epsilon is None else DifferentialPrivacy(epsilon, 1e-6, bounds, neighbours)
                model = fit_quietly(10, sites, privacy=budget, random_state=seed)
                ratios.append(cost_of(rows, model.cluster_centers_[0]) / best)
            lines.append(ratios)
    head = ["cost ratio at epsilon", *("no noise" if e is None else f"{e:g}" for e in MIXTURE_EPSILONS)]
    rows_of = [(f"FedHK, {name}", *(spread(column, 4) for column in np.array(v).T)) for name, v in found.items()]
    return table(f"FedDP-KMeans' mixture, {len(chosen)} seeds", head, [*rows_of, ("FedDP-KMeans", *FEDDP)])


def squares_sets(seed: int) -> dict[str, tuple[Any, int]]:
    """Tables in [-1, 1] and how many clusters; those that end in "-like" are generated."""
    rng = np.random.default_rng(seed)

    def blobs(n_rows: int, means: Any, deviation: float) -> Any:
        return means[rng.integers(len(means), size=n_rows)] + deviation * rng.normal(size=(n_rows, means.shape[1]))

    corners = np.array([[0.0, 0.0], [0.0, 3.0], [4.0, 3.0]])
    wave, colours = np.linspace(0, 4 * np.pi, 100), rng.uniform(size=(6, 3))
    # numbers of people: age, a weight, years of school, gains and losses that most do not have, hours of work
    has, many = rng.random((2, 20_000)) < [[0.08], [0.05]], 20_000
    skewed = np.exp(rng.normal(size=(3, many)) * [[0.5], [1.2], [0.2]] + [[12.0], [8.0], [7.5]])
    people = [rng.gamma(9.0, 4.3, many), skewed[0], rng.normal(10, 2.6, many), has[0] * skewed[1], has[1] * skewed[2]]
    sets = {
        "iris": (load_iris().data, 3),
        "lsun-like": (blobs(400, corners, 0.4), 3),
        "s1-like": (blobs(5000, rng.uniform(size=(15, 2)), 0.03), 15),
        "house-like": (np.round(31 * blobs(20_000, colours, 0.07)), 3),
        "adult-like": (np.column_stack([*people, rng.normal(40, 12, many)]), 3),
        "birch2-like": (blobs(20_000, np.column_stack([wave, 4 * np.sin(wave)]), 0.05), 100),
        "digits": (load_digits().data, 10),
    }
    scaled = {}
    for name, (rows, n_clusters) in sets.items():
        low, high = rows.min(0), rows.max(0)
        scaled[name] = 2 * (rows - low) / np.maximum(high - low, 1e-12) - 1, n_clusters
    return scaled


def far_points(n_clusters: int, width: int, rng: np.random.Generator) -> Any:
    """Points in [-1, 1] that are as far apart, and from the ends, as random draws find without many misses."""
    apart = 1.0
    while True:
        points, misses = np.zeros((0, width)), 0
        while len(points) < n_clusters and misses < 100:
            point = rng.uniform(apart - 1, 1 - apart, width)
            far = len(points) == 0 or np.linalg.norm(points - point, axis=1).min() >= 2 * apart
            points, misses = (np.vstack([points, point]), 0) if far else (points, misses + 1)
        if len(points) == n_clusters:
            return points
        apart /= 2


def fast_lloyd(rows: Any, n_clusters: int, epsilon: float, delta: float, rng: np.random.Generator) -> Any:
    """FastLloyd: rows within a radius of their centre move it, with noise in counts and in sums around the centre."""
    (n, d), scale = rows.shape, noise_multiplier(epsilon, delta)
    across, share = 2 * np.sqrt(d), 0.8 / (2 * n_clusters ** (1 / d))
    rounds = 0.016 * n**2 / (n_clusters**3 * (across * share) ** 2 * (1 + across) ** 2 * scale**2)
    rounds = int(np.clip(rounds, 2, 7))
    centers = far_points(n_clusters, d, rng)
    for turn in range(rounds):
        radius = across / 2 if turn == 0 else across * share
        squares = np.square(rows).sum(1)[:, None] - 2 * rows @ centers.T + np.square(centers).sum(1)
        nearest = squares.argmin(1)
        near = squares.min(1) <= radius**2
        counts = np.bincount(nearest[near], minlength=n_clusters).astype(float)
        sums = np.zeros((n_clusters, d))
        np.add.at(sums, nearest[near], rows[near] - centers[nearest[near]])
        noise = scale * np.sqrt(rounds * (1 + across))
        counts += rng.normal(size=n_clusters) * noise
        moves = (sums + rng.normal(size=sums.shape) * noise * radius / np.sqrt(across)) / (
            np.rint(counts)[:, None] + 1e-9
        )
        length = np.linalg.norm(moves, axis=1, keepdims=True)
        moved = centers + moves * np.minimum(1, radius / np.maximum(length, 1e-300))
        centers = 1 - np.abs((moved + 1) % 4 - 2)  # folded back into [-1, 1]
    return centers


FEW_ROWS = 1000


def measure_squares(chosen: range) -> list[str]:
    epsilons, lines, below = (0.1, 0.5, 1.0), [], 0
    for name, (table_of, _) in squares_sets(0).items():
        found = []
        drawn = range(4 * len(chosen)) if len(table_of) < FEW_ROWS else chosen
        for seed in drawn:
            rows, n_clusters = squares_sets(seed)[name]
            line = [cost_of(rows, rows.mean(0)[None]), best_cost(rows, n_clusters, None, seed)]
            delta, rng = 1 / (len(rows) * np.log(len(rows))), np.random.default_rng(seed)
            for epsilon in epsilons:
                budget = DifferentialPrivacy(epsilon, delta, (-1, 1), "add-remove")
                model = fit_quietly(n_clusters, cut_in_sites(rows, 3), privacy=budget, random_state=seed)
                other = [cost_of(rows, fast_lloyd(rows, n_clusters, epsilon, delta, rng)) for _ in range(10)]
                line += [cost_of(rows, model.cluster_centers_[0]), float(np.mean(other))]
            found.append(np.array(line) / len(rows))
        means = np.mean(found, axis=0)[2:].reshape(-1, 2)
        below += int(np.sum(means[:, 0] <= means[:, 1]))
        lines.append((name, str(len(drawn)), *(spread(column, 4) for column in np.array(found).T)))
    head = ["cost per row", "seeds", "one centre", "no noise"]
    head += [f"{who}, {epsilon:g}" for epsilon in epsilons for who in ("FedHK", "FastLloyd")]
    return table(f"sets of FastLloyd's kind, in [-1, 1]: at or below it in {below} of {3 * len(lines)}", head, lines)


# -------------------------------------------------------------------------------------------------- agreement by itself


def measure_digits(chosen: range) -> list[str]:
    epsilons, lines = (0.5, 1.0, 2.0, 4.0, 8.0), []
    views = {"one view": [load_digits().data], "four views": load_multiview_digits().views}
    truth = load_digits().target
    for name, tables_of in views.items():
        bounds = [(float(np.floor(view.min())), float(np.ceil(view.max()))) for view in tables_of]
        found = []
        for seed in chosen:
            split = split_even(len(truth), 10, random_state=seed)
            labels = {site: truth[rows] for site, rows in split.items()}
            sites, line = split_views(tables_of, split), []
            for epsilon in epsilons:
                privacy = DifferentialPrivacy(epsilon, DELTA, bounds)
                line.append(agreement(fit_quietly(10, sites, privacy=privacy, random_state=seed), labels))
            found.append(line)
        lines.append((name, *(spread(column) for column in np.array(found).T)))
    return table(f"digits, {len(chosen)} seeds", ["ARI at epsilon", *(f"{epsilon:g}" for epsilon in epsilons)], lines)


def measure_masks(chosen: range) -> list[str]:
    kinds = (EFKMVC, FedHKTucker, FedHKParafac2, FedHKPerson, FedHKDiffusion)
    lines, means, sets = [], [], shared_sets() or public_sets()
    for kind in kinds:
        changes = []
        for data in sets:
            found = []
            for seed in chosen:
                split = site_rows(data, seed)
                labels = {site: data.labels[rows] for site, rows in split.items()}
                sites = split_views(data.views, split)
                options = {"random_state": seed}
                with threadpool_limits(1), warnings.catch_warnings():
                    warnings.simplefilter("ignore", UserWarning)
                    models = [kind(data.n_classes, secure=secure, **options).fit(sites) for secure in (False, True)]
                found.append([agreement(model, labels) for model in models])
            plain, masked = np.array(found).T
            lines.append((kind.__name__, data.name, spread(plain), spread(masked), spread(masked - plain, 3, "+")))
            changes.append([plain, masked, masked - plain])
        plain, masked, change = np.mean(changes, axis=0)
        error = f"{np.std(change, ddof=1) / np.sqrt(len(chosen)):.3f}" if len(chosen) > 1 else "-"
        means.append((kind.__name__, spread(plain), spread(masked), spread(change, 3, "+"), error))
    heads = ["plain", "masks", "difference"]
    title = f"masks without noise, {len(chosen)} seeds"
    of_means = table(f"{title}: mean over the sets", ["", *heads, "standard error"], means)
    return [*of_means, *table(title, ["", "data", *heads], lines)]


class SharedNoise(OpenSums):
    """Totals as under masks, of numbers that the server could see."""

    def __init__(self, masks: SecureSummation) -> None:
        self.masks = masks

    def add(self, board: Any, replies: Any) -> Any:
        board, total = super().add(board, replies)
        return board, replace(total, sharers=self.masks.threshold_of(len(total.sites)))


class NoiseSharer(MaskedSite):
    """A site that adds its share of the noise, and no masks."""

    def answer(self, site: Any, asked: Any, release: Any) -> Any:  # noqa: ARG002
        return Numbers.of(release())

    def noise_share(self, site: Any, privacy: Any) -> float:  # noqa: ARG002
        return default_threshold(SITES) ** -0.5


SITES = 2000


def measure_sites(chosen: range) -> list[str]:
    found: dict[str, list[float]] = {"add-remove": [], "replace": []}
    with patch.object(sealed_phase, "MaskedSums", SharedNoise), patch.object(sealed_guard, "MaskedSite", NoiseSharer):
        for seed in chosen:
            rows, means = make_mixture(seed)
            best, sites = best_cost(rows, 10, means, seed), cut_in_sites(rows, SITES)
            bounds = float(np.floor(rows.min())), float(np.ceil(rows.max()))
            for neighbours, ratios in found.items():
                budget = DifferentialPrivacy(1.0, 1e-6, bounds, neighbours, rounds=3, unit="site")
                model = fit_quietly(10, sites, privacy=budget, random_state=seed)
                ratios.append(cost_of(rows, model.cluster_centers_[0]) / best)
    lines = [(name, spread(ratios, 4)) for name, ratios in found.items()]
    return table(f"{SITES} sites of 50 rows, epsilon 1, {len(chosen)} seeds", ["neighbours", "cost ratio"], lines)


LEVEL_UNITS = (1.0, 1.73, 2.31, 3.46)
CATEGORIES = [(kind, n, width) for kind in ("none", "some", "strong") for n in (2, 4) for width in (6, 9, 12)]


def make_mixed(seed: int, kind: str, n_levels: int, width: float) -> tuple[pl.DataFrame, Any, Any]:
    """Rows with six numbers and a category, their clusters, and bounds."""
    rng = np.random.default_rng(seed)
    centers, labels = 1.6 * rng.normal(size=(3, 6)), rng.integers(3, size=900)
    numbers = centers[labels] + rng.normal(size=(900, 6))
    shares = np.full((3, n_levels), 1 / n_levels)
    if kind == "some":
        shares = rng.dirichlet(np.ones(n_levels), size=3)
    elif kind == "strong":
        shares = np.full((3, n_levels), 0.05 / (n_levels - 1))
        shares[np.arange(3), np.arange(3) % n_levels] = 0.95
    levels = pl.Enum([str(i) for i in range(n_levels)])
    category = pl.Series("c", [str(rng.choice(n_levels, p=shares[label])) for label in labels], dtype=levels)
    middle, half = numbers.mean(axis=0), width / 2 * numbers.std(axis=0)
    low, high = np.append(middle - half, np.zeros(n_levels)), np.append(middle + half, np.ones(n_levels))
    rows = pl.DataFrame(numbers, schema=[f"x{i}" for i in range(6)]).with_columns(category)
    return rows, labels, [(low, high)]


def measure_categories(chosen: range) -> list[str]:
    lines = []
    for case in CATEGORIES:
        found: dict[float, list[float]] = {unit: [] for unit in LEVEL_UNITS}
        for seed in chosen:
            rows, labels, bounds = make_mixed(seed, *case)
            sites = {f"site-{i}": {"table": rows[i::3]} for i in range(3)}
            budget = DifferentialPrivacy(6.0, DELTA, bounds)
            for unit, scores in found.items():
                with patch.object(scales, "LEVEL_UNIT", unit):
                    model = fit_quietly(3, sites, privacy=budget, random_state=seed)
                given = np.empty(len(labels), np.int64)
                for i, site in enumerate(sites):
                    given[i::3] = model.labels_[site]
                scores.append(adjusted_rand_score(labels, given))
        lines.append((*map(str, case), *(spread(scores, 2) for scores in found.values())))
    names = ["category", "levels", "range in standard deviations", *(f"units times {unit:g}" for unit in LEVEL_UNITS)]
    return table(f"Numbers and a category, 900 rows, epsilon 6, ARI, {len(chosen)} seeds", names, lines)


FIRST_START, STARTS, FOUND = 4000, 36, 0.75


def make_differing(seed: int) -> tuple[Any, int, float]:
    """Rows of sites that measure differently, the number of clusters and epsilon."""
    rng = np.random.default_rng(seed)
    n_sites, n_clusters = int(rng.integers(4, 9)), int(rng.integers(3, 7))
    rows = int(np.exp(rng.uniform(np.log(3000), np.log(10000))))
    widths = tuple(int(width) for width in rng.integers(3, 12, rng.integers(1, 4)))
    separation, epsilon = float(rng.uniform(4.5, 7)), float(np.exp(rng.uniform(np.log(0.7), np.log(4))))
    options = {"shift": float(rng.uniform(0.6, 1.3)), "missing_views": 0.15 if len(widths) > 1 else 0.0}
    data = make_sites(
        n_sites, rows // n_sites, n_clusters, widths, class_mix=1.5, separation=separation, random_state=seed, **options
    )
    return data, n_clusters, epsilon


def measure_start(chosen: range) -> list[str]:
    lines: list[tuple[str, ...]] = []
    means: list[tuple[float, float]] = []
    seed = FIRST_START
    while len(lines) < STARTS:
        data, n_clusters, epsilon = make_differing(seed)
        sites = {"all": list(data.views)}  # one noise, as under masks, which cancel
        bounds = [(float(np.floor(np.nanmin(view))), float(np.ceil(np.nanmax(view)))) for view in data.views]
        found = []
        for draw in (None, *chosen):
            budget = None if draw is None else DifferentialPrivacy(epsilon, DELTA, bounds)
            with threadpool_limits(1), warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)
                model = EFKMVC(n_clusters, scaling="standard", privacy=budget, random_state=draw or 0).fit(sites)
            found.append(float(adjusted_rand_score(data.labels, model.labels_["all"])))
            if found[0] < FOUND:
                break
        if found[0] >= FOUND:
            means.append((found[0], float(np.mean(found[1:]))))
            lines.append((str(seed), str(n_clusters), f"{epsilon:.2f}", f"{found[0]:.3f}", spread(found[1:])))
        seed += 1
    plain, private = np.mean(means, axis=0)
    title = f"Sites that measure differently: mean ARI {private:.3f}, without noise {plain:.3f}, {len(chosen)} draws"
    return table(title, ["federation", "clusters", "epsilon", "without noise", "with noise"], lines)


PARTS = {
    "agreement": ("privacy.md", measure_agreement),
    "mixture": ("privacy-mixture.md", measure_mixture),
    "squares": ("privacy-squares.md", measure_squares),
    "digits": ("privacy-digits.md", measure_digits),
    "masks": ("privacy-masks.md", measure_masks),
    "sites": ("privacy-sites.md", measure_sites),
    "categories": ("privacy-categories.md", measure_categories),
    "start": ("privacy-start-federations.md", measure_start),
}


def main(given: argparse.Namespace) -> None:
    for part in given.only:
        file, measure = PARTS[part]
        report = "\n".join(measure(seeds(given.seeds)))
        print(report)
        (RESULTS / file).write_text(report)


if __name__ == "__main__":
    main(given)
