"""Each of the paper's algorithms in the ways in which it can be had: to the letter, as a preset, as the estimator.

    python benchmarks/presets.py iris wine breast heart4 snareseq msrcv1_5v watch7     # or all sets without a name

ARI of all rows, with sites and scaling as in `literal.py`. A preset is `fedhk.from_paper`, with m = 2 and with m = 1.1,
in at most 20 rounds.
"""

from __future__ import annotations

from usage import show_help

if __name__ == "__main__":  # before imports that take seconds
    show_help(__doc__)

import sys
import warnings
from collections.abc import Sequence

import numpy as np
from sklearn.metrics import adjusted_rand_score
from threadpoolctl import threadpool_limits

import fedhk
from data import RESULTS, DataSet, public_sets, seeds, shared_sets
from fedhk.estimators.from_paper import PRESETS
from methods import METHODS, PAPER, Sites
from tables import spread, table

SEEDS = seeds(2)
MOST_ROUNDS = 20
FUZZIFIERS = (2.0, 1.1)


def preset_labels(sites: Sites, algorithm: int, fuzzifier: float) -> dict[str, np.ndarray]:
    """Labels that a preset gives the rows of every site."""
    model = fedhk.from_paper(
        algorithm,
        sites.n_clusters,
        heat_coef="minmax",
        fuzzifier=fuzzifier,
        scaling=sites.data.scaling,
        max_rounds=MOST_ROUNDS,
        random_state=sites.seed,
    )
    return dict(model.fit(sites.views).labels_)


def score(data: DataSet, seed: int, algorithm: int, way: str | float) -> float:
    """ARI of one way to have an algorithm; NaN where it does not run."""
    sites = Sites(data, seed)
    with threadpool_limits(1), np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if isinstance(way, str):
            found = METHODS[way][1](sites)
            labels = None if found is None else found.labels
        else:
            labels = preset_labels(sites, algorithm, way)
    if labels is None:
        return float("nan")
    truth = sites.split(data.labels)
    return float(adjusted_rand_score(*(np.concatenate([part[site] for site in truth]) for part in (truth, labels))))


def describe(scores: np.ndarray) -> str:
    """Mean over seeds, with the spread where there are several."""
    return spread(scores, 2) if len(scores) > 1 else f"{scores[0]:.2f}"


def tables(sets: Sequence[DataSet]) -> list[str]:
    """One table for each algorithm: a data set a row, a way a column."""
    lines = [
        f"ARI over all rows, z-scores, heat_coef='minmax', at most {MOST_ROUNDS} rounds, seeds: {len(SEEDS)}.",
        "",
    ]
    for algorithm, preset in PRESETS.items():
        letter = f"paper, Algorithm {algorithm}"
        ways = [letter, *FUZZIFIERS, PAPER[letter]]
        jobs = [(data, seed, algorithm, way) for data in sets for way in ways for seed in SEEDS]
        scores = np.array([score(*job) for job in jobs]).reshape(-1, len(ways), len(SEEDS))
        rows = [
            (data.name, *("-" if np.isnan(values).any() else describe(values) for values in by_way))
            for data, by_way in zip(sets, scores, strict=True)
        ]
        mean = scores[~np.isnan(scores).any(axis=(1, 2))].mean(axis=0)
        rows.append(("mean where all run", *(describe(values) for values in mean)))
        columns = ("data", "to the letter", *(f"preset, m = {m:g}" for m in FUZZIFIERS), PAPER[letter])
        lines += table(f"Algorithm {algorithm}, {preset.name}", columns, rows)
        print("\n".join(lines), flush=True)
    return lines


def main() -> None:
    sets = [*public_sets(), *shared_sets()]
    lines = tables([data for data in sets if len(sys.argv) == 1 or data.name in sys.argv])
    (RESULTS / "presets.md").write_text("\n".join(lines))


if __name__ == "__main__":
    main()
