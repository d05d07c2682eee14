"""`FedHKDiffusion` against balanced k-means on pooled rows, and against the bytes of `EFKMVC`.

    python benchmarks/diffusion.py [--seeds 5] [--sets handwritten,heart4] [--public] [--secure]
    python benchmarks/diffusion.py --large
    python benchmarks/diffusion.py --private [--seeds 3]
    python benchmarks/diffusion.py --stretched [--seeds 4]

Sites are the real ones where data have them, else ten sites by `split_dirichlet(labels, 10, 0.5)`. Every figure is of a
real fit with default parameters; bytes are those of its history, both ways. Labels are for measuring only. `--secure`
lets the server see sums over sites only, with EFKMVC too.
"""

from __future__ import annotations

import argparse

if __name__ == "__main__":  # before imports that take seconds
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5, help="how many")
    parser.add_argument("--sets", default="", help="names of data sets, with commas between them; all by default")
    parser.add_argument("--public", action="store_true", help="also the sets of scikit-learn")
    parser.add_argument("--secure", action="store_true", help="under masks")
    parser.add_argument("--stretched", action="store_true", help="clusters along which all features move instead")
    parser.add_argument("--large", action="store_true", help="time and memory of many rows instead")
    parser.add_argument("--private", action="store_true", help="clusters of several shapes under noise instead")
    options = parser.parse_args()

import itertools
import resource
import time
from typing import Any

import numpy as np
from sklearn.datasets import make_blobs, make_circles, make_moons
from sklearn.metrics import adjusted_rand_score

import fedhk
from data import DataSet, balanced_kmeans, public_sets, shared_sets, site_rows
from fedhk.privacy import DifferentialPrivacy

BARS = {
    "msrcv1_5v": 0.68,
    "bbcsport": 0.90,
    "handwritten": 0.94,
    "leaves100": 0.88,
    "snareseq": 0.93,
    "wisdm6": 0.76,
    "watch7": 0.62,
}
LEAST_GAIN, MOST_LOSS, MOST_BYTES = 0.08, 0.02, 3.0

# Seeds that EFKMVC is run with, for its bytes.
PEER_SEEDS = 2

Record = dict[str, float]


def run(estimator: Any, data: DataSet, seed: int, *, secure: bool) -> Record:
    """One federated fit: agreement with the labels, bytes, rounds, seconds."""
    split = site_rows(data, seed)
    sites = {name: [view[rows] for view in data.views] for name, rows in split.items()}
    began = time.perf_counter()
    model = estimator(data.n_classes, random_state=seed, secure=secure).fit(sites)
    labels = np.concatenate([model.labels_[name] for name in split])
    truth = np.concatenate([data.labels[rows] for rows in split.values()])
    return {
        "ari": adjusted_rand_score(truth, labels),
        "bytes": sum(record["bytes_up"] + record["bytes_down"] for record in model.history_),
        "rounds": model.n_iter_,
        "seconds": time.perf_counter() - began,
    }


def mean(records: list[Record], name: str) -> float:
    return float(np.mean([record[name] for record in records]))


def compare(data: DataSet, seeds: int, *, secure: bool) -> Record:
    """One line of the table."""
    found = [run(fedhk.FedHKDiffusion, data, seed, secure=secure) for seed in range(seeds)]
    peers = [run(fedhk.EFKMVC, data, seed, secure=secure) for seed in range(min(seeds, PEER_SEEDS))]
    base = float(np.mean([adjusted_rand_score(data.labels, balanced_kmeans(data, seed)) for seed in range(seeds)]))
    line = {
        "ari": mean(found, "ari"),
        "base": base,
        "least": min(record["ari"] for record in found),
        "ratio": mean(found, "bytes") / mean(peers, "bytes"),
    }
    print(
        f"| {data.name} | {base:.3f} | {mean(peers, 'ari'):.3f} | {line['ari']:.3f} | {line['least']:.3f} | "
        f"{BARS.get(data.name, '')} | {line['ari'] - base:+.3f} | {mean(found, 'bytes') / 1e6:.2f} | "
        f"{line['ratio']:.2f} | {mean(found, 'rounds'):.1f} | {mean(found, 'seconds'):.0f} |",
        flush=True,
    )
    return line


def judge(lines: dict[str, Record]) -> None:
    """The means, and what was missed."""
    gain = float(np.mean([line["ari"] - line["base"] for line in lines.values()]))
    ratio = float(np.mean([line["ratio"] for line in lines.values()]))
    print(f"\nMean gain over balanced k-means {gain:+.3f} (wanted: {LEAST_GAIN:+.2f}).", end=" ")
    print(f"Mean bytes {ratio:.2f} times those of EFKMVC (wanted: at most {MOST_BYTES:g}).")
    below = [name for name, bar in BARS.items() if name in lines and lines[name]["ari"] < bar]
    worse = {name: line["ari"] - line["base"] for name, line in lines.items()}
    missed = [f"{name} {lines[name]['ari']:.3f} of {BARS[name]}" for name in below]
    missed += [f"{name} {loss:+.3f}" for name, loss in worse.items() if loss < -MOST_LOSS]
    print("Missed: " + ("; ".join(missed) if missed else "none") + ".")


def large(n_rows: int = 100_000, n_sites: int = 10) -> None:
    """Seconds and memory of a fit to many rows of four views."""
    rng = np.random.default_rng(0)
    labels = rng.integers(10, size=n_rows)
    views = [3.0 * rng.normal(size=(10, d))[labels] + rng.normal(size=(n_rows, d)) for d in (20, 30, 40, 10)]
    owner = np.arange(n_rows) % n_sites
    sites = {f"site-{s}": [view[owner == s] for view in views] for s in range(n_sites)}
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began, used = time.perf_counter(), time.process_time()
    model = fedhk.FedHKDiffusion(10, random_state=0).fit(sites)
    seconds, cpu = time.perf_counter() - began, time.process_time() - used
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found = np.concatenate([model.labels_[site] for site in sites])
    truth = np.concatenate([labels[owner == s] for s in range(n_sites)])
    print(
        f"{n_rows:,} rows, {n_sites} sites, 100 features in 4 views, {len(model.anchors_[0])} anchors: {seconds:.0f} s "
        f"({cpu:.0f} s of processor time), peak memory {after / 1024:.0f} MB ({before / 1024:.0f} MB before the fit), "
        f"{model.n_iter_} rounds, ARI {adjusted_rand_score(truth, found):.3f}"
    )


def draw_shapes(kind: str, n_rows: int, seed: int) -> tuple[list[np.ndarray], np.ndarray]:
    """Rows of two views, the second turned and with a little noise, and their clusters."""
    rng = np.random.default_rng(seed)
    if kind == "moons":
        rows, labels = make_moons(n_rows, noise=0.08, random_state=seed)
    elif kind == "rings":
        rows, labels = make_circles(n_rows, noise=0.06, factor=0.4, random_state=seed)
    else:
        rows, labels = make_blobs(n_rows, centers=5, n_features=4, cluster_std=2.0, random_state=seed)
    turn = np.linalg.qr(rng.normal(size=(rows.shape[1], rows.shape[1])))[0]
    return [rows, rows @ turn + 0.1 * rng.normal(size=rows.shape)], labels


def private(seeds: int, n_rows: int = 15_000, n_sites: int = 10) -> None:
    """ARI of clusters of several shapes under noise and masks; "replace", delta 1e-6, bounds are the rounded range."""
    print(f"| {n_rows:,} rows, {n_sites} sites | epsilon | FedHKDiffusion | least | EFKMVC |\n|---|---|---|---|---|")
    for kind, epsilon in itertools.product(("moons", "rings", "round"), (0.5, 1.0, 2.0, 4.0)):
        found: dict[Any, list[float]] = {fedhk.FedHKDiffusion: [], fedhk.EFKMVC: []}
        for seed in range(100, 100 + seeds):
            views, labels = draw_shapes(kind, n_rows, seed)
            split = {f"site-{s}": np.arange(s, n_rows, n_sites) for s in range(n_sites)}
            sites = {name: [view[rows] for view in views] for name, rows in split.items()}
            bounds = (float(np.floor(np.min(views))), float(np.ceil(np.max(views))))
            privacy = DifferentialPrivacy(epsilon, 1e-6, bounds)
            for estimator, scores in found.items():
                model = estimator(len(np.unique(labels)), privacy=privacy, secure=True, random_state=seed).fit(sites)
                truth = np.concatenate([labels[rows] for rows in split.values()])
                scores.append(adjusted_rand_score(truth, np.concatenate([model.labels_[name] for name in split])))
        ours, theirs = found.values()
        print(f"| {kind} | {epsilon:g} | {np.mean(ours):.2f} | {min(ours):.2f} | {np.mean(theirs):.2f} |", flush=True)


def stretched(seeds: int, n_rows: int = 360, n_sites: int = 3) -> None:
    """ARI of three clusters in two views, along which all features move together, without and with stretched rows."""
    print("| spread, distance | as they come | least | stretched | least |\n|---|---|---|---|---|")
    for spread, apart in itertools.product((2.0, 3.0, 4.0), (2.5, 3.5)):
        found: dict[bool, list[float]] = {False: [], True: []}
        for seed in range(seeds):
            rng = np.random.default_rng(seed)
            labels, views = rng.integers(3, size=n_rows), []
            for _ in range(2):
                shared = spread * rng.normal(size=(n_rows, 1)) * np.ones((1, 4))
                views.append(shared + apart * np.eye(4)[labels] + 0.7 * rng.normal(size=(n_rows, 4)))
            sites = {f"site-{s}": [view[s::n_sites] for view in views] for s in range(n_sites)}
            truth = np.concatenate([labels[s::n_sites] for s in range(n_sites)])
            for stretch, scores in found.items():
                options = fedhk.Diffusion(stretch=stretch)
                model = fedhk.FedHKDiffusion(3, diffusion=options, random_state=0).fit(sites)
                scores.append(adjusted_rand_score(truth, np.concatenate([model.labels_[site] for site in sites])))
        cells = [f"{number:.2f}" for scores in found.values() for number in (np.mean(scores), min(scores))]
        print(f"| {spread:g}, {apart:g} | {' | '.join(cells)} |", flush=True)


def main(options: argparse.Namespace) -> None:
    if options.large:
        large()
        return
    if options.private:
        private(options.seeds)
        return
    if options.stretched:
        stretched(options.seeds)
        return
    wanted = set(filter(None, options.sets.split(",")))
    print("| data | balanced k-means | EFKMVC | FedHKDiffusion | least | wanted | gain | MB | vs EFKMVC | rounds | s |")
    print("|---|---|---|---|---|---|---|---|---|---|---|", flush=True)
    sets = [*shared_sets(), *(public_sets() if options.public else [])]
    chosen = [data for data in sets if not wanted or data.name in wanted]
    judge({data.name: compare(data, options.seeds, secure=options.secure) for data in chosen})


if __name__ == "__main__":
    main(options)
