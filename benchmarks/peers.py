"""Every method that a user could take instead, on the same sites.

    python benchmarks/peers.py [public]

Sites are the real ones, or ten by Dirichlet(0.5). ARI, NMI and ACC are over all rows (a cluster must mean the same
everywhere); "site ARI" is the mean over sites of the agreement within a site, which is all that models of sites alone
have. What the methods are: `methods.py`. `public` leaves the shared data out, as they are where there are none.
"""

from __future__ import annotations

from usage import show_help

if __name__ == "__main__":  # before imports that take seconds
    show_help(__doc__)

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from joblib import Parallel, delayed
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score
from threadpoolctl import threadpool_limits

from data import RESULTS, DataSet, public_sets, seeds, shared_sets
from fedhk.metrics import matched_accuracy
from methods import FEDERATED, METHODS, OURS, Sites, mvlearn_is_there
from plots import save
from tables import size, spread, table

SEEDS = seeds(2)
OUR_FEDERATED = tuple(method for method in OURS if method in FEDERATED)
QUALITY, COST = ("ARI", "NMI", "ACC", "site ARI"), ("rounds", "kB a site", "seconds")

# Figures of the methods' authors, ACC/NMI/ARI in percent as they give them, of pooled and of federated methods; not run
# here.
PUBLISHED = {
    "handwritten": (
        {"GMC": "88/91/85", "MLAN": "97/94/94", "BIGMC": "93/91/94", "LMVSC": "92/84/-", "AMGL": "85/87/-"},
        {},
    ),
    "leaves100": (
        {"GMC": "82/93/50", "MLAN": "87/95/82", "BIGMC": "92/96/88"},
        {"FCUIF": "65/80/48", "MGCD": "78/89/65", "EvoFMVC (tuned on labels)": "85/95/83"},
    ),
    "msrcv1_5v": (
        {"co-reg": "64/58/43", "AMGL": "75/70/62", "SFMC": "81/72/66", "GMC": "90/81/-", "LMVSC": "81/72/-"},
        {},
    ),
    "bbcsport": (
        {"co-reg": "72/65/-", "MLAN": "73/69/-", "GMC": "74/60/-", "AL-MVC": "92/78/-"},
        {"FedDMVC": "69/40/52", "FCUIF": "65/70/49", "EvoFMVC": "75/67/52"},
    ),
}

Record = dict[str, float]
Results = dict[str, dict[str, list[Record]]]
"""Records of every seed, by data set and method."""


def run(data: DataSet, method: str, seed: int) -> Record | None:
    """Measures of one method with one seed; None where it does not run."""
    sites = Sites(data, seed)
    kind, fit = METHODS[method]
    began = time.perf_counter()
    with threadpool_limits(1), np.errstate(all="ignore"):
        found = fit(sites)
    if found is None:
        return None
    seconds = time.perf_counter() - began
    truth = sites.split(data.labels)
    names = [site for site in truth if len(truth[site]) > 1]
    site_ari = float(np.mean([adjusted_rand_score(truth[site], found.labels[site]) for site in names]))
    record = {"site ARI": site_ari, "rounds": found.rounds, "kB a site": found.kilobytes, "seconds": seconds}
    if kind == "alone":
        return record
    all_truth, labels = (np.concatenate([part[site] for site in truth]) for part in (truth, found.labels))
    return record | {
        "ARI": float(adjusted_rand_score(all_truth, labels)),
        "NMI": float(normalized_mutual_info_score(all_truth, labels)),
        "ACC": matched_accuracy(all_truth, labels),
    }


def values(results: Results, data: str, method: str, measure: str) -> list[float]:
    """A measure over seeds; empty where the method does not run or has no such measure."""
    found = [record.get(measure, np.nan) for record in results[data].get(method, [])]
    return found if np.isfinite(found).all() else []


def mean_over_sets(results: Results, method: str, measure: str) -> list[float]:
    """The mean over data sets with each seed; empty where the method does not run on all of them with all seeds."""
    per_set = [values(results, data, method, measure) for data in results]
    return list(np.mean(per_set, axis=0)) if min(map(len, per_set)) == n_seeds(results) else []


def n_seeds(results: Results) -> int:
    return max(len(records) for methods in results.values() for records in methods.values())


def mean_of(results: Results, data: str, method: str, measure: str) -> float:
    """The mean over seeds; less than anything where there is no figure."""
    return float(np.mean(values(results, data, method, measure) or -np.inf))


def best_of(results: Results, data: str, methods: Sequence[str], measure: str) -> str:
    """The method with the largest mean."""
    return max(methods, key=lambda method: mean_of(results, data, method, measure))


def measure_table(results: Results, measure: str) -> list[str]:
    """One line per method; of qualities the best federated figure of each set in bold."""
    best = {data: mean_of(results, data, best_of(results, data, FEDERATED, measure), measure) for data in results}
    rows = []
    for method, (kind, _) in METHODS.items():
        per_set = {data: values(results, data, method, measure) for data in results}
        if not any(per_set.values()):
            continue
        cells = []
        for data, found in per_set.items():
            shown = spread(found) if measure in QUALITY else size(found)
            if 0 < len(found) < n_seeds(results):
                shown += f" ({len(found)} of {n_seeds(results)} seeds)"
            marked = measure in QUALITY and kind == "federated" and found and np.mean(found) >= best[data] - 5e-4
            cells.append(f"**{shown}**" if marked else shown)
        mean = mean_over_sets(results, method, measure)
        rows.append((method, kind, *cells, spread(mean) if measure in QUALITY else size(mean)))
    return table(measure, ("method", "rows", *results, "mean"), rows)


def percents(results: Results, data: str, method: str) -> str:
    """ACC/NMI/ARI as papers give them, with the spread of ARI."""
    measured = [values(results, data, method, measure) for measure in ("ACC", "NMI", "ARI")]
    return "/".join(f"{100 * np.mean(found):.0f}" for found in measured) + f" ± {100 * np.std(measured[-1]):.0f}"


def published_above(results: Results, data: str) -> tuple[str, list[str]]:
    """The best of our federated estimators by ACC, and which published ones are above it."""
    best = best_of(results, data, OUR_FEDERATED, "ACC")
    reached = 100 * mean_of(results, data, best, "ACC")
    figures = {name: text for methods in PUBLISHED[data] for name, text in methods.items()}
    return best, [name for name, text in figures.items() if float(text.partition("/")[0]) > reached]


def published_table(results: Results) -> list[str]:
    """Ours beside what others published; in bold what has a higher ACC than the best of ours."""
    shown = ("balanced k-means", "EFKMVC", "FedHKDiffusion")
    rows = []
    for data in filter(results.__contains__, PUBLISHED):
        _, above = published_above(results, data)
        cells = [
            ", ".join(f"**{name} {text}**" if name in above else f"{name} {text}" for name, text in methods.items())
            for methods in PUBLISHED[data]
        ]
        rows.append((data, *(percents(results, data, method) for method in shown), *cells))
    names = ("data", "balanced k-means, pooled", *shown[1:], "*published, pooled*", "*published, federated*")
    title = "Beside published figures: ACC/NMI/ARI in percent, ± of ARI; bold where the ACC is above the best of ours"
    return table(title, names, rows) if rows else []


def plot(results: Results, path: Path) -> None:
    """Mean ARI of every method that runs on all sets, with the spread over seeds."""
    found = {method: mean_over_sets(results, method, "ARI") for method in METHODS}
    order = sorted((method for method in found if found[method]), key=lambda method: np.mean(found[method]))
    labels = [f"{method} ({METHODS[method][0]})" for method in order]
    colours = ["#0072b2" if method in OURS else "#999999" for method in order]
    figure, axes = plt.subplots(figsize=(7, 0.4 * len(order) + 1))
    axes.barh(labels, [np.mean(found[m]) for m in order], xerr=[np.std(found[m]) for m in order], color=colours)
    axes.set_xlabel(f"ARI over all rows, mean of {len(results)} data sets (FedHK in blue)")
    axes.spines[["top", "right"]].set_visible(False)
    save(figure, path)


def report(title: str, results: Results) -> str:
    """All tables of some sets."""
    lines = [f"{title}: {len(results)} data sets, {n_seeds(results)} seeds."]
    lines += ["", *published_table(results)]
    for measure in (*QUALITY, *COST):
        lines += measure_table(results, measure)
    return "\n".join(lines)


def measure_all(sets: Sequence[DataSet]) -> Results:
    """Every method on every set with every seed, on all cores."""
    methods = [m for m in METHODS if not m.startswith("mvlearn") or mvlearn_is_there()]
    jobs = [(data, method, seed) for data in sets for method in methods for seed in SEEDS]
    runs = Parallel(n_jobs=-1, return_as="generator")(delayed(run)(*job) for job in jobs)
    results: Results = {data.name: {} for data in sets}
    for (data, method, seed), record in zip(jobs, runs, strict=True):
        shown = "does not run" if record is None else f"{record['seconds']:.1f} s"
        print(f"{data.name}: {method}, seed {seed}: {shown}", file=sys.stderr, flush=True)
        if record is not None:
            results[data.name].setdefault(method, []).append(record)
    return results


def main() -> None:
    parts = {"peers": ("Shared data", shared_sets()), "peers-public": ("Data of scikit-learn", public_sets())}
    for name, (title, sets) in parts.items():
        if not sets or ("public" in sys.argv[1:] and name != "peers-public"):
            continue
        results = measure_all(sets)
        (RESULTS / f"{name}.json").write_text(json.dumps(results))
        text = report(title, results)
        print(text)
        (RESULTS / f"{name}.md").write_text(text)
        plot(results, RESULTS / f"{name}.svg")


if __name__ == "__main__":
    main()
