"""How often `n_clusters="auto"` finds the number of clusters, and one cluster in noise; what it costs; the shared sets.

    python benchmarks/number.py [seeds] [first seed] [--shared | --many]

Four sites of 200 rows, two views of eight columns, 2 to 12 clusters, 6 and 8 apart: round; of unequal sizes at sites;
at sites that are shifted by half a spread, and by a whole one with unequal sizes and spreads; with a second view of
mere noise; of unequal sizes and spreads in all. Noise: normal, uniform and heavy-tailed columns.

With --many: 20 to 100 clusters of 10 to 30 rows, 6 and 8 apart, in two to four views of 6 to 32 columns, at four sites,
at ten, and at ten by Dirichlet(.5); every second federation has clusters of unequal sizes and spreads.
"""

from __future__ import annotations

from usage import show_help

if __name__ == "__main__":  # before imports that take seconds
    show_help(__doc__)

import sys
import time
import warnings

import numpy as np

import fedhk
from data import shared_sets, site_rows
from fedhk.agreement.number import NOT_CLEAR
from fedhk.datasets import make_sites, split_dirichlet

KINDS = {
    "round": {"class_mix": None, "size_spread": 0.0},
    "unequal at sites": {"class_mix": 2.0},
    "shifted by a half": {"class_mix": None, "shift": 0.5},
    "shifted by one": {"class_mix": 4.0, "shift": 1.0, "scale": 0.1},
    "useless view": {"class_mix": None},
}
NOISE = {
    "normal": lambda rng, shape: rng.standard_normal(shape),
    "uniform": lambda rng, shape: rng.uniform(size=shape),
    "heavy tails": lambda rng, shape: rng.standard_t(5, shape),
}
ROWS, SITES, WIDTHS = 200, 4, (8, 8)


def make(kind, n_clusters, separation, seed):
    options = {"shift": 0.0, "scale": 0.0} | KINDS[kind]
    options |= {"n_clusters": n_clusters, "separation": separation, "random_state": seed}
    sites = make_sites(SITES, ROWS, n_features=WIDTHS, **options).sites
    if kind != "useless view":
        return sites
    rng = np.random.default_rng(seed)
    return {site: [views[0], rng.standard_normal(views[1].shape)] for site, views in sites.items()}


def make_unequal(n_clusters, separation, seed):
    rng = np.random.default_rng(seed + 7)
    labels = rng.choice(n_clusters, SITES * ROWS, p=rng.dirichlet(np.full(n_clusters, 3.0)))
    views = []
    for width in WIDTHS:
        centers = separation / np.sqrt(2 * width) * rng.standard_normal((n_clusters, width))
        spread = rng.uniform(0.6, 1.4, n_clusters)[labels][:, None]
        views.append(centers[labels] + spread * rng.standard_normal((len(labels), width)))
    return {f"site-{s}": [view[s::SITES] for view in views] for s in range(SITES)}


def make_many(n_clusters, separation, seed):
    rng = np.random.default_rng(seed)
    rows, n_views, unequal = n_clusters * rng.integers(10, 31), rng.integers(2, 5), seed % 2
    labels = np.arange(rows) % n_clusters
    spread = np.ones(n_clusters)
    if unequal:  # at least four rows each
        drawn = rng.choice(n_clusters, rows - 4 * n_clusters, p=rng.dirichlet(np.full(n_clusters, 4.0)))
        labels, spread = np.append(labels[: 4 * n_clusters], drawn), rng.uniform(0.7, 1.3, n_clusters)
    views = []
    for width in rng.choice([6, 8, 16, 32], n_views):
        centers = separation / np.sqrt(2 * width) * rng.standard_normal((n_clusters, width))
        views.append(centers[labels] + spread[labels][:, None] * rng.standard_normal((rows, width)))
    n_sites, order = rng.choice([0, 4, 10]), rng.permutation(rows)
    parts = [order[s::n_sites] for s in range(n_sites)] or split_dirichlet(labels, 10, 0.5, random_state=seed).values()
    return {f"site-{s}": [view[own] for view in views] for s, own in enumerate(parts)}


def fit(sites, n_clusters="auto", **options):
    began = time.process_time()
    model = fedhk.EFKMVC(n_clusters, random_state=0, **options).fit(sites)
    return model, time.process_time() - began


def count_bytes(model):
    return sum(record["bytes_up"] + record["bytes_down"] for record in model.history_)


def main(count, first):
    print("| rows | separation | number found | (there, found) where not | time, bytes: times a fit with the number |")
    print("|---|---|---|---|---|")
    right = []
    fit(make("round", 3, 8, first))  # what is done once in a process is not measured
    for kind in [*KINDS, "unequal in all"]:
        for separation in (6, 8):
            found, ratios = [], []
            for seed in range(count):
                there = 2 + (7 * seed + separation) % 11
                given = there, separation, first + seed
                sites = make_unequal(*given) if kind == "unequal in all" else make(kind, *given)
                model, seconds = fit(sites, scaling="standard")
                found.append((there, model.n_clusters_))
                if seed < 2:
                    plain, once = fit(sites, there, scaling="standard")
                    ratios.append((seconds / once, count_bytes(model) / count_bytes(plain)))
            missed = [pair for pair in found if pair[0] != pair[1]]
            right += [a == b for a, b in found]
            cost = ", ".join(f"{ratio:.1f}" for ratio in np.mean(ratios, axis=0))
            print(f"| {kind} | {separation} | {1 - len(missed) / count:.2f} | {missed} | {cost} |", flush=True)
    print(f"| all {len(right)} | | {np.mean(right):.3f} | | |")
    for name, draw in NOISE.items():
        for width in (1, 2, 5, 16):
            one = []
            for seed in range(2 * count):
                rng = np.random.default_rng(first + seed)
                sites = {f"site-{s}": [draw(rng, (ROWS, width)) for _ in range(2)] for s in range(SITES)}
                one.append(fit(sites, scaling="standard", n_init=2)[0].n_clusters_ == 1)
            print(f"| {name}, 2 x {width} columns | | {np.mean(one):.2f} called one | | |", flush=True)


def main_many(count, first):
    print("| clusters | separation | within a fifth | found | time, bytes: times a fit with the number |")
    print("|---|---|---|---|---|")
    near = []
    for there in (20, 35, 50, 75, 100):
        for separation in (6, 8):
            found, ratios = [], []
            for seed in range(count):
                sites = make_many(there, separation, first + 10 * there + 100 * separation + seed)
                model, seconds = fit(sites, scaling="standard")
                found.append(model.n_clusters_)
                if seed < 2:
                    plain, once = fit(sites, there, scaling="standard")
                    ratios.append((seconds / once, count_bytes(model) / count_bytes(plain)))
            right = [abs(number - there) <= there / 5 for number in found]
            near += right
            cost = ", ".join(f"{ratio:.1f}" for ratio in np.mean(ratios, axis=0))
            print(f"| {there} | {separation} | {np.mean(right):.2f} | {found} | {cost} |", flush=True)
    print(f"| all {len(near)} | | {np.mean(near):.3f} | | |")


def main_shared(count, first):
    print("| set | classes | found |\n|---|---|---|")
    for data in shared_sets():
        found = []
        for seed in range(first, first + count):
            sites = {name: [view[rows] for view in data.views] for name, rows in site_rows(data, seed).items()}
            model = fedhk.EFKMVC("auto", n_init=2, max_rounds=3, random_state=seed).fit(sites)
            note = next(one["note"] for one in model.selection_ if one["taken"])
            found.append(f"{model.n_clusters_}{' (not clear)' if note.startswith(NOT_CLEAR) else ''}")
        print(f"| {data.name} | {data.n_classes} | {', '.join(found)} |", flush=True)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    numbers = [int(word) for word in sys.argv[1:] if word.isdecimal()]
    if "--shared" in sys.argv:
        main_shared(*(numbers + [3, 0][len(numbers) :]))
    elif "--many" in sys.argv:
        main_many(*(numbers + [4, 3000][len(numbers) :]))
    else:
        main(*(numbers + [8, 2000][len(numbers) :]))
