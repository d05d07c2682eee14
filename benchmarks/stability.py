"""Whether `fedhk.stability` orders clusters by how far apart they are, and what it says of noise.

    python benchmarks/stability.py [seeds] [first seed]

Separation: six clusters of 1,200 rows in six dimensions at three sites, whose distances to the nearest one differ.
Noise: 600 rows of independent normal columns at three sites, 2 to 20 columns, 2 to 6 clusters.
"""

from __future__ import annotations

from usage import show_help

if __name__ == "__main__":  # before imports that take seconds
    show_help(__doc__)

import sys
import warnings

import numpy as np
from scipy.stats import spearmanr

import fedhk
from fedhk.after.stability import STABLE

APART = np.array([1.0, 1.3, 1.6, 2.0, 2.5, 3.2])


def at_sites(rows):
    return {f"site-{i}": [rows[i::3]] for i in range(3)}


def order_clusters(seed):
    rng = np.random.default_rng(seed)
    corners = np.sqrt(2) * np.diag(APART)
    sites = at_sites(corners[rng.integers(0, 6, 1200)] + rng.normal(size=(1200, 6)))
    model = fedhk.EFKMVC(6, scaling="none", init=[corners], random_state=seed).fit(sites)
    found = fedhk.stability(model, sites, n_resamples=30, random_state=seed)
    return spearmanr(found.mean_halves, APART).statistic, spearmanr(found.mean_jaccard, APART).statistic


def split_noise(seed, width, n_clusters):
    sites = at_sites(np.random.default_rng(seed).normal(size=(600, width)))
    model = fedhk.EFKMVC(n_clusters, scaling="standard", random_state=seed).fit(sites)
    found = fedhk.stability(model, sites, n_resamples=20, random_state=seed)
    return [np.array(found.verdicts) == "unstable", found.mean_jaccard < STABLE]


def main(count, first):
    seeds = range(first, first + count)
    orders = np.array([order_clusters(seed) for seed in seeds])
    print(f"Spearman with separation: halves {orders[:, 0].mean():.3f}, Hennig's Jaccard {orders[:, 1].mean():.3f}")
    print("\n| columns of noise | called unstable | below .75 by Hennig's Jaccard |\n|---|---|---|")
    for width in (2, 3, 5, 10, 20):
        found = [split_noise(seed, width, 2 + seed % 5) for seed in seeds]
        halves, usual = (np.mean(np.concatenate([part[i] for part in found])) for i in (0, 1))
        print(f"| {width} | {halves:.2f} | {usual:.2f} |", flush=True)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    numbers = [int(word) for word in sys.argv[1:]]
    main(*(numbers + [20, 0][len(numbers) :]))
