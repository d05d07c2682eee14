"""EFKMVC against the same model on pooled rows: quality, rounds and bytes.

    python benchmarks/federation.py

Sites are the real ones where the data have them, else ten sites with classes spread by Dirichlet(0.5). 5 seeds.
"rounds" is the first round whose objective is within 1e-4 of the last. "plain" is the plain map from random rows of
the pooled data, which no federation could draw: what seeding saves.
"""

from __future__ import annotations

from usage import show_help

if __name__ == "__main__":  # before imports that take seconds
    show_help(__doc__)

from typing import Any

import numpy as np
from joblib import Parallel, delayed
from sklearn.metrics import adjusted_rand_score
from threadpoolctl import threadpool_limits

from data import RESULTS, DataSet, balanced_kmeans, public_sets, seeds, shared_sets, site_rows
from fedhk import EFKMVC, HeatKernelMVC
from fedhk.datasets import split_views
from tables import spread, table

SEEDS = seeds(5)

# decimal places and columns of the two tables
COLUMNS = {
    "ARI": (3, ("k-means", "pooled", "statistics", "centers", "objective / pooled")),
    "rounds and bytes": (
        1,
        ("rounds", "all rounds", "plain rounds", "centers rounds", "kB a site", "centers kB"),
    ),
}


def rounds_needed(history: list[dict[str, Any]]) -> int:
    """First round whose objective is within 1e-4 of the last one's."""
    objectives = np.array([record["objective"] for record in history])
    return int(np.argmax(objectives <= objectives[-1] * (1 + 1e-4))) + 1


def run(data: DataSet, seed: int, ten_sites: bool) -> dict[str, float]:
    """One data set with one seed."""
    split = site_rows(data, seed, real=not ten_sites)
    sites = split_views(data.views, split)
    order = np.concatenate([split[name] for name in sorted(split)])
    truth = data.labels[order]
    pooled_views = [view[order] for view in data.views]

    def ari(model: EFKMVC) -> float:
        return float(adjusted_rand_score(truth, np.concatenate([model.labels_[name] for name in sorted(split)])))

    settings = {"scaling": data.scaling, "random_state": seed}
    with threadpool_limits(1):
        pooled = HeatKernelMVC(data.n_classes, **settings).fit(pooled_views)
        federated = EFKMVC(data.n_classes, **settings).fit(sites)
        averaged = EFKMVC(data.n_classes, protocol="centers", **settings).fit(sites)
        plain = HeatKernelMVC(
            data.n_classes, n_init=1, view_weights=federated.view_weights_, fuzzifier=federated.fuzzifier_, **settings
        )
        kmeans = float(adjusted_rand_score(data.labels, balanced_kmeans(data, seed)))
    moved = [sum(r["bytes_up"] + r["bytes_down"] for r in m.history_) / len(sites) for m in (federated, averaged)]
    start = plain_rounds(plain, pooled_views, data, seed, federated)
    return {
        "k-means": kmeans,
        "pooled": float(adjusted_rand_score(truth, pooled.labels_)),
        "statistics": ari(federated),
        "centers": ari(averaged),
        "objective / pooled": federated.objective_ / pooled.objective_,
        "rounds": rounds_needed(federated.history_),
        "all rounds": federated.n_iter_,
        "plain rounds": start,
        "centers rounds": averaged.n_iter_,
        "kB a site": moved[0] / 1e3,
        "centers kB": moved[1] / 1e3,
    }


def plain_rounds(plain: HeatKernelMVC, views: list[np.ndarray], data: DataSet, seed: int, like: EFKMVC) -> int:
    """Rounds of the plain map from random rows of the pooled data."""
    rng = np.random.default_rng(seed)
    rows = rng.choice(len(views[0]), data.n_classes, replace=False)
    filled = [np.where(np.isnan(v), np.nanmean(v, axis=0), v)[rows] for v in views]
    plain.set_params(init=filled, max_iter=like.max_rounds)
    return rounds_needed(plain.fit(views).history_)


def main() -> None:
    lines = []
    with_sites = [data for data in shared_sets() if data.client is not None]
    for title, sets, ten in (
        ("Real sites, or Dirichlet(0.5) over ten", shared_sets(), False),
        ("Data with real sites, by Dirichlet(0.5) over ten instead", with_sites, True),
        ("Data that scikit-learn ships, ten sites by Dirichlet(0.5)", public_sets(), True),
    ):
        if not sets:
            continue
        jobs = [(data, seed) for data in sets for seed in SEEDS]
        results = Parallel(n_jobs=-1)(delayed(run)(data, seed, ten) for data, seed in jobs)
        by_set = {data.name: [r for (d, _), r in zip(jobs, results, strict=True) if d is data] for data in sets}
        # the mean over sets with each seed
        of_all = [
            {name: float(np.mean([r[name] for r in own])) for name in own[0]}
            for own in zip(*by_set.values(), strict=True)
        ]
        for part, (places, shown) in COLUMNS.items():
            rows = [
                (name, *(spread([r[column] for r in own], places) for column in shown))
                for name, own in (by_set | {"**mean**": of_all}).items()
            ]
            lines += table(f"{title}: {part}", ("data", *shown), rows)
    report = "\n".join(lines)
    print(report)
    (RESULTS / "federation.md").write_text(report)


if __name__ == "__main__":
    main()
