"""Clustering quality of HeatKernelMVC's defaults and of what else was tried, against balanced k-means.

    python benchmarks/quality.py             # defaults against balanced k-means, on shared and public data
    python benchmarks/quality.py --tried     # also every alternative, one factor at a time (minutes)
    python benchmarks/quality.py --tried coefficients    # only alternatives with this word, in a table of their own

Balanced k-means is scikit-learn's KMeans(n_init=10) on the z-scored views, each divided by the root of its width, side
by side (text: rows of length 1). Data are pooled, 5 seeds. No labels are used but to measure.
"""

from __future__ import annotations

import argparse

if __name__ == "__main__":  # before imports that take seconds
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--tried", nargs="?", const="", metavar="WORD", help="also run every alternative, or those with this word"
    )
    options = parser.parse_args()

from typing import Any

import numpy as np
from joblib import Parallel, delayed
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score
from threadpoolctl import threadpool_limits

from data import RESULTS, DataSet, balanced_kmeans, public_sets, seeds, shared_sets
from fedhk import HeatKernelMVC
from fedhk.metrics import matched_accuracy
from tables import spread, table

SEEDS = seeds(5)

# One factor at a time, away from the defaults.
TRIED: dict[str, dict[str, Any]] = {
    **{f"heat_time {t}": {"heat_time": t} for t in (0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0)},
    **{f"fuzzifier {m}": {"fuzzifier": m} for m in (1.02, 1.05, 1.0625, 1.1, 1.2, 2.0)},
    "view weights uniform": {"view_weights": "uniform"},
    **{
        f"view weights learned, exponent {a}": {"view_weights": "learned", "view_exponent": a} for a in (2.0, 4.0, 10.0)
    },
    **{f"coefficients {kind}": {"heat_coef": kind} for kind in ("minmax", "absdev")},
    **{f"n_init {n}": {"n_init": n} for n in (1, 5, 10, 40)},
    "starts at random rows": {"init": "random"},
}


def run(data: DataSet, params: dict[str, Any] | None, seed: int) -> tuple[float, float, float]:
    """ARI, NMI and ACC of one method with one seed; None is balanced k-means."""
    with threadpool_limits(1):
        if params is None:
            labels = balanced_kmeans(data, seed)
        else:
            settings = {"scaling": data.scaling} | params
            labels = HeatKernelMVC(data.n_classes, random_state=seed, **settings).fit_predict(data.views)
    return (
        float(adjusted_rand_score(data.labels, labels)),
        float(normalized_mutual_info_score(data.labels, labels)),
        matched_accuracy(data.labels, labels),
    )


def measure(sets: list[DataSet], methods: dict[str, dict[str, Any] | None]) -> dict[str, np.ndarray]:
    """Per method an array (set, seed, measure)."""
    jobs = [(name, i, seed) for name in methods for i in range(len(sets)) for seed in SEEDS]
    results = Parallel(n_jobs=-1)(delayed(run)(sets[i], methods[name], seed) for name, i, seed in jobs)
    tables = {name: np.zeros((len(sets), len(SEEDS), 3)) for name in methods}
    for (name, i, seed), result in zip(jobs, results, strict=True):
        tables[name][i, seed] = result
    return tables


def against_kmeans(title: str, sets: list[DataSet], tables: dict[str, np.ndarray]) -> list[str]:
    """One line per set: both methods, mean and spread over seeds."""
    measures = ("ARI", "NMI", "ACC")
    header = ["data", *(f"{m}, {name}" for m in measures for name in ("k-means", "FedHK")), "ARI gain"]
    base, ours = tables["balanced k-means"], tables["defaults"]
    rows = []
    for name, mine, theirs in [
        *((data.name, ours[i], base[i]) for i, data in enumerate(sets)),
        ("**mean**", ours.mean(axis=0), base.mean(axis=0)),
    ]:
        figures = [spread(found[:, m]) for m in range(len(measures)) for found in (theirs, mine)]
        rows.append((name, *figures, spread(mine[:, 0] - theirs[:, 0], sign="+")))
    return table(title, header, rows)


def what_was_tried(sets: list[DataSet], tables: dict[str, np.ndarray]) -> list[str]:
    """One line per setting: ARI on each set, and the mean."""
    rows = []
    for name, found in tables.items():
        mean, *per_set = (spread(values) for values in (found[..., 0].mean(axis=0), *found[..., 0]))
        rows.append((name, mean, *per_set))
    return table(f"What was tried (ARI, {len(SEEDS)} seeds)", ("setting", "mean", *(data.name for data in sets)), rows)


def main(options: argparse.Namespace) -> None:
    word = options.tried
    methods: dict[str, dict[str, Any] | None] = {"balanced k-means": None, "defaults": {}}
    if word is not None:
        methods |= {name: params for name, params in TRIED.items() if word in name}
    text = []
    for title, sets in (("Shared data", shared_sets()), ("Data that scikit-learn ships", public_sets())):
        if not sets:
            text += [f"### {title}", "", "Not here; set FEDHK_BENCHMARK_DATA to its folder.", ""]
            continue
        tables = measure(sets, methods)
        if not word:
            text += against_kmeans(title, sets, tables)
        if word is not None:
            text += what_was_tried(sets, tables)
    report = "\n".join(text)
    print(report)
    suffix = "" if word is None else f"-{word or 'tried'}"
    (RESULTS / f"quality{suffix}.md").write_text(report)


if __name__ == "__main__":
    main(options)
