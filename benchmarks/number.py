"""How often `fedhk.how_many` finds the number of clusters, and one cluster in noise.

    python benchmarks/number.py [federations of each kind]

Four sites of 200 rows, two views of eight columns, 2 to 9 clusters: alike, of unequal sizes, at sites that are shifted
by half a spread, and with a second view of mere noise. Noise: independent normal columns.
"""

from __future__ import annotations

import sys
import time
import warnings

import numpy as np

import fedhk
from fedhk.datasets import make_sites

KINDS = {"alike": {}, "unequal": {"class_mix": 2.0}, "shifted": {"shift": 0.5}, "useless view": {}}


def make(kind, n_clusters, separation, seed):
    options = {"shift": 0.0, "scale": 0.0} | KINDS[kind]
    options |= {"n_clusters": n_clusters, "separation": separation, "random_state": seed}
    data = make_sites(4, 200, n_features=(8, 8), **options)
    if kind != "useless view":
        return data.sites
    rng = np.random.default_rng(seed)
    return {site: [views[0], rng.normal(size=views[1].shape)] for site, views in data.sites.items()}


def main(count):
    warnings.simplefilter("ignore")
    print("| rows | separation | number found | (there, found) | seconds |\n|---|---|---|---|---|")
    for kind in KINDS:
        for separation in (6, 8):
            rng, found, began = np.random.default_rng(separation), [], time.perf_counter()
            for seed in range(count):
                there = int(rng.integers(2, 10))
                sites = make(kind, there, separation, 100 * separation + seed)
                model = fedhk.EFKMVC(scaling="standard", n_init=5, random_state=0)
                found.append((there, fedhk.how_many(model, sites).n_clusters))
            share = np.mean([a == b for a, b in found])
            seconds = (time.perf_counter() - began) / count
            print(f"| {kind} | {separation} | {share:.2f} | {found} | {seconds:.0f} |", flush=True)
    for width in (2, 5, 16):
        found = []
        for seed in range(count):
            rng = np.random.default_rng(seed)
            sites = {f"site-{i}": [rng.normal(size=(200, width)) for _ in range(2)] for i in range(4)}
            model = fedhk.EFKMVC(scaling="standard", n_init=5, random_state=0)
            found.append(fedhk.how_many(model, sites).n_clusters)
        print(f"| noise, 2 x {width} columns | | {np.mean(np.array(found) == 1):.2f} | {found} | |", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10)
