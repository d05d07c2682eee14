"""How often rows are in the right cluster, by the certainty that a model gives them.

    python benchmarks/certainty.py generated     # 60 generated federations: the power was chosen on these
    python benchmarks/certainty.py real          # shared sets, scikit-learn's and those of unseen.py that are found

Clusters are matched with classes one to one, and a row is right where its cluster is that of its class. Only fits with
an adjusted Rand index of at least .55 count: elsewhere clusters are not the classes, however certain a row is of its
cluster. Memberships are in proportion to 1 / distance^power; the fuzzifier is 1 + 1 / power. The Brier score is the
mean square of certainty less 1 for a right row, and certainty for a wrong one: less is better. One seed.
"""

from __future__ import annotations

from usage import show_help

if __name__ == "__main__":  # before imports that take seconds
    show_help(__doc__)

import sys
import warnings
from collections.abc import Iterator
from itertools import pairwise

import numpy as np
from scipy.optimize import linear_sum_assignment
from sklearn.metrics import adjusted_rand_score
from sklearn.metrics.cluster import contingency_matrix

import agreement
import fedhk
import unseen
from data import public_sets, shared_sets, site_rows
from tables import grid

POWERS = (1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 8.0, 16.0)
BINS = (0.0, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0)
LEAST_INDEX = 0.55
Federation = tuple[dict, dict]


def generated() -> Iterator[Federation]:
    """Forty federations that differ in everything, and twenty of normal clusters more or less apart."""
    for _, views, labels, site in agreement.generated(40, 600):
        yield agreement.split(views, labels, agreement.parts_of(site))
    cases = [(c, apart) for c in (2, 3, 5, 8, 12) for apart in (2.0, 3.0, 4.0, 6.0)]
    for number, (c, apart) in enumerate(cases):
        width, seed = (6, 4), 1000 + number
        made = fedhk.datasets.make_sites(
            4, 200, n_clusters=c, n_features=width, shift=0, scale=0, separation=apart, random_state=seed
        )
        yield made.sites, made.site_labels


def real() -> Iterator[Federation]:
    """Sets at their real sites, or at ten by Dirichlet(.5)."""
    for load in (*(lambda data=data: data for data in (*shared_sets(), *public_sets())), *unseen.SETS):
        try:
            data = load()
        except FileNotFoundError as error:
            print(f"left out: {error}", file=sys.stderr)
            continue
        parts = site_rows(data, 0)
        sites = {site: [view[rows] for view in data.views] for site, rows in parts.items()}
        yield sites, {site: data.labels[rows] for site, rows in parts.items()}


def find_right(truth: np.ndarray, found: np.ndarray) -> np.ndarray:
    """Whether each row is in the cluster of its class, clusters matched with classes one to one."""
    counts = contingency_matrix(truth, found)
    classes, clusters = linear_sum_assignment(-counts)
    match = dict(zip(np.unique(found)[clusters], np.unique(truth)[classes], strict=True))
    return np.array([match.get(own) == label for own, label in zip(found, truth, strict=True)])


def certainties(distances: np.ndarray, power: float) -> np.ndarray:
    """The largest membership of each row."""
    near = (distances.min(axis=1, keepdims=True) / np.maximum(distances, 1e-300)) ** power
    return 1.0 / near.sum(axis=1)


def measure(name: str, federations: Iterator[Federation]) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Distances, certainty and right rows of each fit that finds the classes."""
    kept = []
    for sites, labels in federations:
        truth = np.concatenate(list(labels.values()))
        model = getattr(fedhk, name)(len(np.unique(truth)), random_state=0).fit(sites)
        found = np.concatenate([model.labels_[site] for site in sites])
        if adjusted_rand_score(truth, found) >= LEAST_INDEX:
            distances = np.concatenate([model.client_models_[site].transform(views) for site, views in sites.items()])
            certain = np.concatenate([model.memberships_[site].max(axis=1) for site in sites])
            kept.append((distances, certain, find_right(truth, found)))
    return kept


def main() -> None:
    warnings.simplefilter("ignore")
    federations = real if "real" in sys.argv else generated
    for name in ("FedHKDiffusion", "EFKMVC"):
        kept = measure(name, federations())
        print(f"\n### {name}: {len(kept)} {federations.__name__} federations\n")
        lines = []
        for power in POWERS:
            scores = [np.mean(np.square(certainties(far, power) - right)) for far, _, right in kept]
            above = [np.mean(certainties(far, power)) - np.mean(right) for far, _, right in kept]
            lines.append([f"{power:g}", f"{np.mean(scores):.4f}", f"{np.mean(above):+.3f}"])
        print("\n".join(grid(["power", "Brier score", "mean certainty less share of right rows"], lines)), "\n")
        certain, right = (np.concatenate([part[place] for part in kept]) for place in (1, 2))
        lines = []
        for low, high in pairwise(BINS):
            own = (certain >= low) & ((certain < high) | (high == BINS[-1]))
            if own.any():
                numbers = [f"{np.mean(own):.2f}", f"{np.mean(certain[own]):.2f}", f"{np.mean(right[own]):.2f}"]
                lines.append([f"{low:g} to {high:g}", *numbers])
        print("\n".join(grid(["certainty", "share of rows", "mean certainty", "right"], lines)), "\n")


if __name__ == "__main__":
    main()
