"""Speed and memory of one iteration against the bare matrix products and against peers, all in one run.

    python benchmarks/speed.py            # everything
    python benchmarks/speed.py --quick    # growth and memory with fewer rows

Timings are noisy, so everything is measured in one process, interleaved, and ratios of the best times are what counts;
beside them stand mean and spread of the ratios of single turns.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from sklearn.cluster import KMeans
from threadpoolctl import threadpool_limits

from data import RESULTS
from fedhk.data.views import check_views
from fedhk.model.parameters import Parameters
from fedhk.model.passes import Passes, own_threads
from fedhk.model.preparation import prepare
from fedhk.model.rows import Rows
from tables import spread, table

WIDTHS = (64, 64, 32)


def make_views(n_rows: int, widths: tuple[int, ...], dtype: str = "float32", seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    which = rng.integers(20, size=n_rows)
    return [
        (
            3 * rng.standard_normal((20, width), dtype=np.float32)[which]
            + rng.standard_normal((n_rows, width), np.float32)
        ).astype(dtype)
        for width in widths
    ]


def parameters_for(rows: Rows, views: list[np.ndarray], n_clusters: int) -> Parameters:
    centers = tuple(
        reference.to_model(view[:n_clusters]) for reference, view in zip(rows.references, views, strict=True)
    )
    n_views = len(views)
    return Parameters(centers, np.full(n_views, 1 / n_views), 0.3, 1.0625, 2.0, np.ones(n_views))


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
    parameters = parameters_for(rows, views, n_clusters)
    scan = Passes(rows, n_clusters, workers)
    return lambda: scan.statistics(parameters)


def kmeans_iteration(views: list[np.ndarray], n_clusters: int) -> Callable[[], None]:
    joint = np.hstack(views)

    def run() -> None:
        KMeans(n_clusters, init=joint[:n_clusters], n_init=1, max_iter=5, tol=0).fit(joint)

    return run


def faiss_iteration(views: list[np.ndarray], n_clusters: int) -> Callable[[], None] | None:
    try:
        import faiss  # noqa: PLC0415
    except ImportError:
        return None
    joint = np.ascontiguousarray(np.hstack(views))

    def run() -> None:
        model = faiss.Kmeans(joint.shape[1], n_clusters, niter=5, max_points_per_centroid=10**9)
        model.train(joint, init_centroids=joint[:n_clusters])

    return run


def fuzzy_iteration(views: list[np.ndarray], n_clusters: int) -> Callable[[], None] | None:
    try:
        import skfuzzy  # noqa: PLC0415
    except ImportError:
        return None
    joint = np.hstack(views).T

    def run() -> None:
        skfuzzy.cmeans(joint, n_clusters, 1.1, error=0, maxiter=2, seed=0)

    return run


def compare(n_rows: int, repeats: int) -> list[str]:
    views = make_views(n_rows, WIDTHS)
    with threadpool_limits(None), own_threads() as workers:
        uniform = one_pass(views, 20, "uniform", workers)
        weighted = one_pass(views, 20, "minmax", workers)

        def with_blas(function: Callable[[], object]) -> Callable[[], None]:
            def run() -> None:
                with threadpool_limits(workers, "blas"):
                    function()

            return run

        functions: dict[str, Callable[[], object]] = {
            "products": with_blas(bare_products(views, 20, lifted=False)),
            "pass": uniform,
            "lifted products": with_blas(bare_products(views, 20, lifted=True)),
            "weighted pass": weighted,
            "KMeans": with_blas(kmeans_iteration(views, 20)),
        }
        for name, peer in (("faiss", faiss_iteration(views, 20)), ("scikit-fuzzy", fuzzy_iteration(views, 20))):
            if peer is not None:
                functions[name] = with_blas(peer)
        times = interleaved(functions, repeats)
    per_iteration = {"KMeans": 5, "faiss": 5, "scikit-fuzzy": 2}
    times = {name: taken / per_iteration.get(name, 1) for name, taken in times.items()}
    base = {"pass": "products", "weighted pass": "lifted products"}
    rows = []
    for name, taken in times.items():
        other = base.get(name, "pass")
        ratio = taken.min() / times[other].min()
        shown = [f"{ratio:.2f} x {other}", spread(taken / times[other], 2)] if other != name else ["", ""]
        rows.append([name, f"{1e3 * taken.min():.1f}", *shown])
    return table(
        f"One iteration: {n_rows:,} rows, {'+'.join(map(str, WIDTHS))} features, 20 clusters, float32, {workers} cores",
        ["what", "best, ms", "ratio of the best", "ratio by turn"],
        rows,
    )


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    lines = compare(200_000, 5 if quick else 7)
    lines += growth(10_000 if quick else 50_000, 3)
    lines += memory(50_000 if quick else 200_000, 100_000 if quick else 2_000_000)
    report = "\n".join(lines)
    print(report)
    (RESULTS / "speed.md").write_text(report)


if __name__ == "__main__":
    main()
