"""Tables of numbers and categories: federated clustering against what is usual for such tables, pooled.

    python benchmarks/mixed.py [--seeds 10]

Generated tables look like two well-known ones: census records (2,000 people, six numbers of which two are skewed, six
categories of 2 to 14 levels, three groups) and heart patients (900 rows, six numbers, six categories of 2 to 4 levels,
two groups). Of each column, how much it differs between groups is drawn anew with every seed; 5 % of the cells are
missing; four sites have other shares of the groups. Others see all rows pooled, and their gaps filled by means and the
most frequent level, but for Gower's distance, which leaves missing cells out. heart4 and heart4_nan (where they are
there) have their categorical columns declared. "Two views" has half of the numbers and categories in each. No labels
are used but to measure. How categories weigh was chosen on other seeds of generated tables (results/mixed-tried.md).
"""

from __future__ import annotations

import argparse

if __name__ == "__main__":  # before imports that take seconds
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10, help="how many")
    parser.add_argument("--only", default="", help="methods with this word")
    options = parser.parse_args()

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score
from threadpoolctl import threadpool_limits

import fedhk
from data import RESULTS, SHARED, seeds
from tables import spread, table

MISSING = 0.05

HEART = ["age", "sex", "trestbps", "chol", "fbs", "cp", "restecg", "thalach", "exang", "oldpeak", "slope", "ca", "thal"]


@dataclass(frozen=True)
class Mixed:
    """Numbers and categories of the same rows, with a site and a group for each."""

    frame: pd.DataFrame  # categories are of that type
    views: dict[str, list[str]]
    site: np.ndarray
    labels: np.ndarray

    @property
    def n_classes(self) -> int:
        return len(np.unique(self.labels))

    @property
    def numbers(self) -> pd.DataFrame:
        return self.frame.select_dtypes("number")

    @property
    def categories(self) -> pd.DataFrame:
        return self.frame.select_dtypes("category")


def make_table(
    seed: int, rows: int, groups: int, *, levels: list[int], skewed: int, effect: float, shares: list[float]
) -> Mixed:
    """A generated table with six numbers, a category for each number of levels, and four sites."""
    rng = np.random.default_rng(seed)
    site = rng.choice(4, rows, p=shares)
    mix = rng.dirichlet(np.full(groups, 3.0), 4)
    labels = np.array([rng.choice(groups, p=mix[one]) for one in site])
    columns: dict[str, Any] = {}
    for number in range(6):
        centers = rng.normal(size=groups) * rng.uniform(0, effect)
        values = centers[labels] + rng.normal(size=rows)
        columns[f"number_{number}"] = np.exp(values) if number < skewed else 50 + 10 * values
    for number, size in enumerate(levels):
        base, share = rng.dirichlet(np.full(size, 2.0)), rng.uniform(0, effect) / (1 + effect)
        chances = (1 - share) * base + share * rng.dirichlet(np.full(size, 0.5), groups)
        codes = [rng.choice(size, p=chances[group] / chances[group].sum()) for group in labels]
        columns[f"category_{number}"] = pd.Categorical.from_codes(codes, [f"level {i}" for i in range(size)])
    frame = pd.DataFrame(columns)
    frame = frame.mask(rng.random(frame.shape) < MISSING)
    names = list(frame.columns)
    views = {"first": [*names[:3], *names[6:9]], "second": [*names[3:6], *names[9:]]}
    return Mixed(frame, views, np.array(["a", "b", "c", "d"])[site], labels)


def census_like(seed: int) -> Mixed:
    return make_table(seed, 2000, 3, levels=[2, 5, 6, 7, 8, 14], skewed=2, effect=1.6, shares=[0.4, 0.3, 0.2, 0.1])


def heart_like(seed: int) -> Mixed:
    return make_table(
        1000 + seed, 900, 2, levels=[2, 2, 2, 3, 3, 4], skewed=1, effect=1.6, shares=[0.33, 0.32, 0.13, 0.22]
    )


def heart4(seed: int) -> Mixed:  # noqa: ARG001 - it is what it is
    """The shared table with its categorical columns declared, gaps filled."""
    with np.load(SHARED / "heart4.npz") as file:
        first, second, labels, client = (file[name] for name in ("view_0", "view_1", "labels", "client"))
    codes = [second[:, :4].argmax(axis=1), second[:, 4:7].argmax(axis=1), *second[:, 7:].T]
    return _heart_table([*first.T, *codes], labels, client)


def heart4_nan(seed: int) -> Mixed:  # noqa: ARG001
    """The shared table with its gaps and three columns more."""
    with np.load(SHARED / "heart4_nan.npz") as file:
        parts, labels, client = [file[f"view_{i}"] for i in range(3)], file["labels"], file["client"]
    return _heart_table([column for part in parts for column in part.T], labels, client)


def _heart_table(columns: list[np.ndarray], labels: np.ndarray, client: np.ndarray) -> Mixed:
    frame = pd.DataFrame(dict(zip(HEART, columns, strict=False)))  # heart4 lacks the last three
    for name in {"sex", "fbs", "cp", "restecg", "exang", "slope", "thal"} & set(frame):
        frame[name] = frame[name].astype("Int64").astype("category")
    names = list(frame)
    views = {"record": names[:5], "heart": names[5:10]} | ({"scan": names[10:]} if names[10:] else {})
    return Mixed(frame, views, client.astype(str), labels)


# ----------------------------------------------------------------------------------------------------------- methods


def federated(estimator: type[Any], *, in_views: bool = False) -> Callable[[Mixed, int], np.ndarray]:
    """Rows stay at their sites."""

    def fit(data: Mixed, seed: int) -> np.ndarray:
        views = data.views if in_views else None
        sites = fedhk.from_frame(data.frame.assign(site=data.site), site="site", views=views)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = estimator(data.n_classes, random_state=seed).fit(sites)
        found = np.empty(len(data.labels), int)
        for name, labels in model.labels_.items():
            found[data.site == name] = labels
        return found

    return fit


def filled(data: Mixed) -> tuple[np.ndarray, pd.DataFrame]:
    """Numbers as z-scores and categories as text, without gaps."""
    numbers = data.numbers.to_numpy(float)
    z = (numbers - np.nanmean(numbers, axis=0)) / np.nanstd(numbers, axis=0)
    categories = data.categories
    return np.nan_to_num(z), categories.fillna(categories.mode().iloc[0]).astype(str)


def k_prototypes(data: Mixed, seed: int) -> np.ndarray:
    """Huang's k-prototypes with the usual weight of categories, half of the spread of numbers."""
    from kmodes.kprototypes import KPrototypes  # noqa: PLC0415

    numbers, categories = filled(data)
    both = np.hstack([numbers.astype(object), categories.to_numpy(object)])
    places = list(range(numbers.shape[1], both.shape[1]))
    model = KPrototypes(data.n_classes, init="Cao", n_init=5, random_state=seed)
    return np.asarray(model.fit_predict(both, categorical=places))


def gower_medoids(data: Mixed, seed: int) -> np.ndarray:
    """PAM on Gower's distance: the mean over columns that both rows have, of numbers by their range."""
    import kmedoids  # noqa: PLC0415

    total = np.zeros((len(data.frame), len(data.frame)))
    known = np.zeros_like(total)
    for name in data.frame:
        column = data.frame[name]
        codes = column.cat.codes.to_numpy() if column.dtype == "category" else column.to_numpy(float)
        here = column.notna().to_numpy()
        gap = np.abs(codes[:, None] - codes[None]).astype(float)
        gap = (gap > 0).astype(float) if column.dtype == "category" else gap / np.ptp(codes[here])
        both = here[:, None] & here[None]
        total += np.where(both, gap, 0.0)
        known += both
    distance = total / np.maximum(known, 1)
    found = [
        kmedoids.fasterpam(distance, data.n_classes, random_state=10 * seed + start, n_cpu=1) for start in range(5)
    ]
    return np.asarray(min(found, key=lambda one: one.loss).labels, int)


def one_hot_kmeans(data: Mixed, seed: int) -> np.ndarray:
    """scikit-learn's usual way: z-scores beside zeros and ones."""
    numbers, categories = filled(data)
    both = np.hstack([numbers, pd.get_dummies(categories).to_numpy(float)])
    return KMeans(data.n_classes, n_init=10, random_state=seed).fit_predict(both)


METHODS: dict[str, Callable[[Mixed, int], np.ndarray]] = {
    "EFKMVC, four sites": federated(fedhk.EFKMVC),
    "FedHKPerson, four sites": federated(fedhk.FedHKPerson),
    "FedHKDiffusion, four sites": federated(fedhk.FedHKDiffusion),
    "EFKMVC, four sites, two views": federated(fedhk.EFKMVC, in_views=True),
    "FedHKPerson, four sites, two views": federated(fedhk.FedHKPerson, in_views=True),
    "FedHKDiffusion, four sites, two views": federated(fedhk.FedHKDiffusion, in_views=True),
    "k-prototypes, pooled": k_prototypes,
    "Gower and k-medoids, pooled": gower_medoids,
    "one-hot KMeans, pooled": one_hot_kmeans,
}


def main(options: argparse.Namespace) -> None:
    sets = {"census-like": census_like, "heart-like": heart_like}
    sets |= {make.__name__: make for make in (heart4, heart4_nan) if (SHARED / f"{make.__name__}.npz").is_file()}
    rows = []
    for method, fit in METHODS.items():
        if options.only not in method:
            continue
        scores: dict[str, list[float]] = {name: [] for name in sets}
        for name, make in sets.items():
            for seed in seeds(options.seeds):
                data = make(seed)
                with threadpool_limits(1):
                    scores[name].append(float(adjusted_rand_score(data.labels, fit(data, seed))))
        rows.append([method, *(spread(values) for values in scores.values())])
        print(rows[-1], flush=True)
    text = "\n".join(table(f"ARI, mean and spread over {options.seeds} seeds", ["method", *sets], rows))
    if not options.only:
        (RESULTS / "mixed.md").write_text(text)


if __name__ == "__main__":
    main(options)
