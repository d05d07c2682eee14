"""Speed and memory of one iteration against the bare matrix products and against peers, all in one run.

    python benchmarks/speed.py            # everything
    python benchmarks/speed.py --quick    # growth and memory with fewer rows
    python benchmarks/speed.py --only fits

An iteration of a peer is a tenth of the difference between fits with 3 and with 13 iterations: set-up is not in it.

Timings are noisy, so everything is measured in one process, interleaved, and ratios of the best times are what counts;
beside them stand mean and spread of the ratios of single turns.
"""

from __future__ import annotations

import argparse

if __name__ == "__main__":  # before imports that take seconds
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="growth and memory with fewer rows")
    parser.add_argument("--only", choices=["iteration", "fits", "growth", "memory"], help="one table, printed only")
    given = parser.parse_args()

import importlib.util
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
from sklearn.cluster import KMeans
from threadpoolctl import threadpool_limits

from data import RESULTS, shared_sets
from fedhk import HeatKernelMVC
from fedhk.data.views import check_views
from fedhk.estimators.choices import make_settings
from fedhk.model.descent import minimise
from fedhk.model.parameters import Parameters
from fedhk.model.passes import Passes, own_threads
from fedhk.model.preparation import prepare
from fedhk.model.rows import Rows
from tables import spread, table

WIDTHS = (64, 64, 32)


def make_views(
    n_rows: int,
    widths: tuple[int, ...],
    dtype: str = "float32",
    seed: int = 0,
    *,
    apart: float = 3.0,
    n_clusters: int = 20,
) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    which = rng.integers(n_clusters, size=n_rows)
    return [
        (
            apart * rng.standard_normal((n_clusters, width), dtype=np.float32)[which]
            + rng.standard_normal((n_rows, width), np.float32)
        ).astype(dtype)
        for width in widths
    ]


def parameters_for(rows: Rows, n_clusters: int, n_iter: int = 3) -> Parameters:
    """Parameters as a fit has them after some iterations; the fuzzifier is what "auto" gives."""
    settings = make_settings(
        HeatKernelMVC(n_clusters, n_init=2), rows.views.names, rows.views.shapes, single_table=False
    )
    start = settings.start(rows, np.random.RandomState(0), 1)
    with Passes(rows, n_clusters) as scan:
        return minimise(scan.statistics, start, learn_weights=False, max_iter=n_iter, tol=0)[0].parameters


def interleaved(functions: dict[str, Callable[[], object]], repeats: int) -> dict[str, np.ndarray]:
    """Times of each function in turns in which every function runs once, after a pause and a run that warms it.

    The pause lets the threads of the previous function's libraries go to sleep: they spin for a while when idle.
    """
    times = {name: np.zeros(repeats) for name in functions}
    for turn in range(repeats):
        for name, function in functions.items():
            time.sleep(0.3)
            function()
            began = time.perf_counter()
            function()
            times[name][turn] = time.perf_counter() - began
    return times


def bare_products(views: list[np.ndarray], n_clusters: int, lifted: bool) -> Callable[[], None]:
    """X A^T and W^T X per view; `lifted`: on [delta x, delta]."""
    data = [np.hstack([view, view]) for view in views] if lifted else views
    weights = np.random.default_rng(1).random((len(views[0]), n_clusters), dtype=np.float32)

    def run() -> None:
        for view in data:
            view @ view[:n_clusters].T
            weights.T @ view

    return run


def one_pass(views: list[np.ndarray], n_clusters: int, heat_coef: str, workers: int) -> Callable[[], object]:
    checked = check_views(views)
    rows = Rows(checked, prepare(checked, "standard", heat_coef, None))
    parameters = parameters_for(rows, n_clusters)
    scan = Passes(rows, n_clusters, workers)
    return lambda: scan.statistics(parameters)


def kmeans_fit(joint: np.ndarray, n_clusters: int, n_iter: int) -> Callable[[], None]:
    def run() -> None:
        KMeans(n_clusters, init=joint[:n_clusters], n_init=1, max_iter=n_iter, tol=0).fit(joint)

    return run


def faiss_fit(joint: np.ndarray, n_clusters: int, n_iter: int) -> Callable[[], None]:
    import faiss  # noqa: PLC0415

    def run() -> None:
        model = faiss.Kmeans(joint.shape[1], n_clusters, niter=n_iter, max_points_per_centroid=10**9)
        model.train(joint, init_centroids=joint[:n_clusters])

    return run


def fuzzy_fit(joint: np.ndarray, n_clusters: int, n_iter: int) -> Callable[[], None]:
    import skfuzzy  # noqa: PLC0415

    return lambda: skfuzzy.cmeans(joint.T, n_clusters, 1.1, error=0, maxiter=n_iter, seed=0)


# Peers by the library that they come from.
PEERS = {"sklearn": ("KMeans", kmeans_fit), "faiss": ("faiss", faiss_fit), "skfuzzy": ("scikit-fuzzy", fuzzy_fit)}
SHORT, LONG = 3, 13


def compare(n_rows: int, repeats: int, apart: float, n_clusters: int) -> list[str]:
    views = make_views(n_rows, WIDTHS, apart=apart, n_clusters=n_clusters)
    joint = np.ascontiguousarray(np.hstack(views))
    with threadpool_limits(None), own_threads() as workers:

        def with_blas(function: Callable[[], object]) -> Callable[[], None]:
            def run() -> None:
                with threadpool_limits(workers, "blas"), warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    function()

            return run

        functions: dict[str, Callable[[], object]] = {
            "products": with_blas(bare_products(views, n_clusters, lifted=False)),
            "pass": one_pass(views, n_clusters, "uniform", workers),
            "lifted products": with_blas(bare_products(views, n_clusters, lifted=True)),
            "weighted pass": one_pass(views, n_clusters, "minmax", workers),
        }
        named = [peer for library, peer in PEERS.items() if importlib.util.find_spec(library)]
        for name, fit in named:
            for n_iter in (SHORT, LONG):
                functions[f"{name} {n_iter}"] = with_blas(fit(joint, n_clusters, n_iter))
        times = interleaved(functions, repeats)
    for name, _ in named:
        short, long = times.pop(f"{name} {SHORT}"), times.pop(f"{name} {LONG}")
        times[name] = np.maximum(long - short, (long.min() - short.min())) / (LONG - SHORT)
    base = {"pass": "products", "weighted pass": "lifted products"}
    rows = []
    for name, taken in times.items():
        other = base.get(name, "pass")
        ratio = taken.min() / times[other].min()
        shown = [f"{ratio:.2f} x {other}", spread(taken / times[other], 2)] if other != name else ["", ""]
        rows.append([name, f"{1e3 * taken.min():.1f}", *shown])
    shape = f"{n_rows:,} rows, {'+'.join(map(str, WIDTHS))} features, {n_clusters} clusters"
    return table(
        f"One iteration: {shape} whose means are {apart:g} spreads apart, float32, {workers} cores",
        ["what", "best, ms", "ratio of the best", "ratio by turn"],
        rows,
    )


def whole_fits(repeats: int) -> list[str]:
    """Whole fits, starts included, against scikit-learn's KMeans with ten starts on z-scores of all features.

    Two ratios compare what was found. Squared distances to means are what KMeans minimises: a view counts by the number
    of its features. The objective is what the model minimises, where views count by their weights; the labels of KMeans
    are given every chance by running the model on from their means.
    """
    cases = [(f"generated, {apart:g} apart", make_views(200_000, WIDTHS, apart=apart), 20) for apart in (3.0, 0.5)]
    cases += [(data.name, data.views, data.n_classes) for data in shared_sets()]
    lines = []
    for name, views, n_clusters in cases:
        joint = np.nan_to_num(np.hstack([_z_scores(view) for view in views]))
        fits = {
            "HeatKernelMVC": HeatKernelMVC(n_clusters, scaling="standard", random_state=0),
            "KMeans": KMeans(n_clusters, n_init=10, random_state=0),
        }
        data = {"HeatKernelMVC": views, "KMeans": joint}
        times: dict[str, list[float]] = {own: [] for own in fits}
        for _ in range(repeats):
            for own, model in fits.items():
                began = time.process_time()
                model.fit(data[own])
                times[own].append(time.process_time() - began)
        inertia = {own: _inertia(joint, model.labels_) for own, model in fits.items()}
        ours, theirs = (min(times[own]) for own in fits)
        model = fits["HeatKernelMVC"]
        objective = model.objective_ / _objective_from(views, fits["KMeans"].labels_, model)
        shown = [f"{ours / theirs:.2f}", f"{inertia['HeatKernelMVC'] / inertia['KMeans']:.3f}", f"{objective:.3f}"]
        lines.append([name, f"{len(joint):,}", str(n_clusters), f"{ours:.2f}", f"{theirs:.2f}", *shown])
    header = ["data", "rows", "clusters", "HeatKernelMVC, s", "KMeans, s", "ratio"]
    header += ["squared distances to means, ratio", "objective, ratio to the model run on from KMeans"]
    return table("Whole fits, processor time (z-scores; ten starts of KMeans)", header, lines)


def _z_scores(view: np.ndarray) -> np.ndarray:
    spreads = np.nanstd(view, axis=0)
    return (view - np.nanmean(view, axis=0)) / np.where(spreads > 0, spreads, 1)


def _inertia(joint: np.ndarray, labels: np.ndarray) -> float:
    """Summed squared distances of rows to the mean of their cluster."""
    return sum(float(np.square(joint[labels == k] - joint[labels == k].mean(axis=0)).sum()) for k in np.unique(labels))


def _objective_from(views: list[np.ndarray], labels: np.ndarray, model: HeatKernelMVC) -> float:
    """Objective of the same model run on from the means of given clusters."""
    groups = [labels == k for k in range(model.n_clusters)]
    means = [np.array([np.nan_to_num(np.nanmean(view[rows], axis=0)) for rows in groups]) for view in views]
    again = HeatKernelMVC(
        model.n_clusters,
        scaling="standard",
        init=means,
        view_weights=model.view_weights_,
        fuzzifier=model.fuzzifier_,
    )
    return float(again.fit(views).objective_)


def growth(n_rows: int, repeats: int) -> list[str]:
    """Time per iteration as rows, clusters and features double."""
    lines = []
    with own_threads() as workers:
        for what, rows, clusters, width in [
            *[("rows", n_rows * k, 20, 64) for k in (1, 2, 4)],
            *[("clusters", n_rows, 20 * k, 64) for k in (1, 2, 4)],
            *[("features", n_rows, 20, 64 * k) for k in (1, 2, 4)],
        ]:
            views = make_views(rows, (width, width))
            taken = interleaved({"pass": one_pass(views, clusters, "uniform", workers)}, repeats)["pass"]
            single = 1e12 * taken / (rows * clusters * width)
            shown = (f"{1e3 * taken.min():.1f}", f"{single.min():.0f}", spread(single, 0))
            lines.append([what, f"{rows:,}", str(clusters), str(2 * width), *shown])
    header = ["doubled", "rows", "clusters", "features", "best, ms", "best, ps per row, cluster and feature", "by turn"]
    return table("Growth (linear: ps do not rise)", header, lines)


MEMORY_SCRIPT = """
import resource, sys, threading, time
import numpy as np
from fedhk import HeatKernelMVC
kind, folder = sys.argv[1:]
views = [np.load(f"{folder}/{h}.npy", mmap_mode="r" if kind == "memmap" else None) for h in range(3)]
warm = HeatKernelMVC(2, n_init=1, max_iter=2).fit([v[:500] for v in views])
def anonymous():
    return int(open("/proc/self/smaps_rollup").read().split("Anonymous:")[1].split()[0]) / 1024
def resident():
    return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize() / 2**20
measure = resident if kind == "resident" else anonymous
base, peak, done = measure(), 0.0, False
def watch():
    global peak
    while not done:
        peak = max(peak, measure())
        time.sleep(0.002)
thread = threading.Thread(target=watch); thread.start()
HeatKernelMVC(20, n_init=2, max_iter=3, tol=0, random_state=0).fit(views)
done = True; thread.join()
print(peak - base, sum(v.nbytes for v in views) / 2**20)
"""


def memory(n_rows: int, n_mapped: int, repeats: int = 3) -> list[str]:
    """Peak memory of a whole fit above what was there before it, in a fresh process."""
    lines = []
    for kind, count in (("in memory", n_rows), ("memmap", n_mapped)):
        with tempfile.TemporaryDirectory() as folder:
            for h, width in enumerate(WIDTHS):
                mapped = np.lib.format.open_memmap(f"{folder}/{h}.npy", "w+", np.float32, (count, width))
                for start in range(0, count, 100_000):
                    stop = min(start + 100_000, count)
                    mapped[start:stop] = make_views(stop - start, (width,), seed=start)[0]
                mapped.flush()
                del mapped
            script = Path(folder) / "measure.py"
            script.write_text(MEMORY_SCRIPT)
            command = [sys.executable, str(script), kind, folder]
            outs = [
                subprocess.run(command, check=True, capture_output=True, text=True).stdout  # noqa: S603
                for _ in range(repeats)
            ]
        above, data = np.array([out.split() for out in outs], dtype=float).T
        lines.append([kind, f"{count:,}", f"{data[0]:.0f}", spread(above, 0), f"{above.mean() / data[0]:.0%}"])
    header = ["data", "rows", "data, MB", "peak above, MB", "share"]
    return table("Memory of a whole fit (labels and memberships included)", header, lines)


def main(given: argparse.Namespace) -> None:
    quick = given.quick
    parts = {
        "iteration": lambda: [
            line
            for apart, n_clusters in ((3.0, 20), (3.0, 100), (0.25, 20))
            for line in compare(200_000, 5 if quick else 7, apart, n_clusters)
        ],
        "fits": lambda: whole_fits(1 if quick else 3),
        "growth": lambda: growth(10_000 if quick else 50_000, 3),
        "memory": lambda: memory(50_000 if quick else 200_000, 100_000 if quick else 2_000_000),
    }
    report = "\n".join(line for name, make in parts.items() if given.only in (None, name) for line in make())
    print(report)
    if given.only is None:
        (RESULTS / "speed.md").write_text(report)


if __name__ == "__main__":
    main(given)
